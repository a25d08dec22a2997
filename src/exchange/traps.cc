#include "exchange/traps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace moetune::exchange {
namespace {

constexpr size_t kMostOfAKind = 2;

using TrapKind = Trap::Kind;

std::vector<std::string> words_of(const std::string& device) {
  std::vector<std::string> words(1);
  for (const char c : device) {
    if (c == '_' || c == '-' || c == ' ') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  // Some drivers and tools leave the maker out.
  if (words.size() > 1 && (words.front() == "nvidia" || words.front() == "amd"))
    words.erase(words.begin());
  return words;
}

bool has_digit(const std::string& word) {
  return std::any_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string file_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Whether the names agree in all but the parts that are made alike here.
bool alike(TableName a, const TableName& b, bool device, bool experts, bool rows, bool format) {
  if (device) a.device = b.device;
  if (experts) a.experts = b.experts;
  if (rows) a.intermediate = b.intermediate;
  if (format) {
    a.dtype = b.dtype;
    a.block_shape = b.block_shape;
    a.per_channel = b.per_channel;
  }
  return a == b;
}

struct Search {
  const TableName& wanted;
  Engine engine;
  const std::vector<std::string>& looked_for;
  const LayerFacts& layer;

  bool is_looked_for(const std::string& path) const {
    return std::find(looked_for.begin(), looked_for.end(), path) != looked_for.end();
  }
  const char* title() const { return facts_of(engine).title; }
};

std::optional<Trap> same_name(const Search& search, const TableFile& file) {
  if (!(file.name == search.wanted) || search.is_looked_for(file.path)) return std::nullopt;
  const std::string spelt = search.wanted.text(search.engine);
  if (file_part(file.path) != spelt) {
    return Trap{
        TrapKind::kSpelling, file.path,
        fmt::format("{} writes this name as {}: rename or copy the file", search.title(), spelt)};
  }
  if (search.engine == Engine::kSglang && file.path.find("/configs/triton_") != std::string::npos) {
    return Trap{TrapKind::kTriton, file.path,
                "it is for another version of Triton, which the folder's name says: tune again "
                "with this one"};
  }
  return Trap{TrapKind::kMisplaced, file.path,
              fmt::format("{} does not look there: move it to {}", search.title(),
                          search.looked_for.empty() ? "a folder where it does"
                                                    : search.looked_for.front())};
}

std::optional<Trap> other_experts(const Search& search, const TableFile& file) {
  const LayerFacts& layer = search.layer;
  const int64_t more = file.name.experts - search.wanted.experts;
  const int64_t fusable = std::max(layer.shared_experts, int64_t{1});
  const int64_t fused = std::max(layer.fused_experts, int64_t{1});
  if (more > 0 && more <= fusable) {
    return Trap{TrapKind::kSharedExpert, file.path,
                fmt::format("it has E={}: a shared expert that {} fuses into the layer counts as "
                            "one more; with --shared-experts that is looked for",
                            file.name.experts, search.title())};
  }
  if (more < 0 && -more <= fused) {
    return Trap{TrapKind::kSharedExpert, file.path,
                fmt::format("it has E={}: without the shared expert, which {} counts where it is "
                            "fused into the layer",
                            file.name.experts, search.title())};
  }
  return std::nullopt;
}

Trap other_rows(const Search& search, const TableFile& file) {
  const int64_t rows = file.name.intermediate;
  const int64_t whole = search.layer.full_intermediate;
  std::string ranks;
  if (whole > 0 && whole % rows == 0) ranks = fmt::format(", as with --tp {}", whole / rows);
  return {TrapKind::kParallel, file.path,
          fmt::format("it has N={}{}: N is one rank's share, {} here", rows, ranks,
                      search.wanted.intermediate)};
}

Trap other_device(const Search& search, const TableFile& file) {
  if (!is_near_device(file.name.device, search.wanted.device)) {
    return {TrapKind::kOtherDevice, file.path,
            fmt::format("it is for another device, {}", file.name.device)};
  }
  return {TrapKind::kDevice, file.path,
          fmt::format("it is for {}, and {} calls this device {}: names must agree to the letter; "
                      "tune here, or copy it under this name if the boards are alike",
                      file.name.device, search.title(), search.wanted.device)};
}

std::optional<Trap> trap_of(const Search& search, const TableFile& file) {
  const TableName& wanted = search.wanted;
  const TableName& name = file.name;
  if (name == wanted) return same_name(search, file);
  if (alike(name, wanted, true, false, false, false)) return other_device(search, file);
  if (alike(name, wanted, false, true, false, false)) return other_experts(search, file);
  if (alike(name, wanted, false, false, true, false)) return other_rows(search, file);
  if (!alike(name, wanted, false, false, false, true)) return std::nullopt;
  return Trap{TrapKind::kFormat, file.path,
              fmt::format("it is for other weights: {}, where {} is looked for", name.shape_text(),
                          wanted.shape_text())};
}

}  // namespace

const char* to_string(Trap::Kind kind) {
  switch (kind) {
    case TrapKind::kMisplaced: return "misplaced";
    case TrapKind::kSpelling: return "spelling";
    case TrapKind::kTriton: return "triton_version";
    case TrapKind::kDevice: return "device_name";
    case TrapKind::kSharedExpert: return "shared_expert";
    case TrapKind::kParallel: return "tensor_parallel";
    case TrapKind::kFormat: return "format";
    case TrapKind::kOtherDevice: return "other_device";
  }
  return "other_device";
}

bool is_near_device(const std::string& a, const std::string& b) {
  const std::vector<std::string> first = words_of(a);
  const std::vector<std::string> second = words_of(b);
  if (first == second) return true;
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (first[i] != second[i]) return false;
    if (has_digit(first[i])) return true;
  }
  return false;
}

std::vector<Trap> find_traps(const TableName& wanted, Engine engine,
                             const std::vector<std::string>& looked_for, const LayerFacts& layer,
                             const std::vector<TableFile>& files) {
  const Search search{wanted, engine, looked_for, layer};
  std::vector<Trap> traps;
  for (const TableFile& file : files) {
    std::optional<Trap> trap = trap_of(search, file);
    if (!trap) continue;
    const auto alike_count = std::count_if(
        traps.begin(), traps.end(), [&](const Trap& other) { return other.kind == trap->kind; });
    if (static_cast<size_t>(alike_count) < kMostOfAKind) traps.push_back(std::move(*trap));
  }
  std::stable_sort(traps.begin(), traps.end(),
                   [](const Trap& a, const Trap& b) { return a.kind < b.kind; });
  return traps;
}

}  // namespace moetune::exchange

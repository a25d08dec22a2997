#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "checkpoint/json_events.h"

namespace moetune::checkpoint {

namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kMostDimensions = 16;

/// A tensor as the header describes it: nothing of it is checked yet.
struct Entry {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_shape = false;
};

/// {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}, and texts under
/// "__metadata__". Fields that the format does not have are passed over.
class HeaderReader final : public JsonListener {
 public:
  std::vector<Entry> entries;

  Problem on_open(bool is_array) override {
    if (depth() == 1 && is_array) return wrong("an array");
    if (depth() == 1 && key(1) != kMetadata) entries.push_back({.name = key(1)});
    if (depth() == 2 && in_field() && (!is_array || field() == "dtype"))
      return wrong(is_array ? "an array" : "an object");
    if (depth() >= 3 && in_field()) return wrong("nested");
    if (depth() == 2 && field() == "shape" && key(1) != kMetadata) entries.back().has_shape = true;
    return {};
  }
  // At once, so that a header of many entries with nothing in them does not fill the memory.
  Problem on_close() override {
    if (depth() != 1 || key(1) == kMetadata) return {};
    const Entry& entry = entries.back();
    const char* missing = entry.type.empty()          ? "no dtype"
                          : !entry.has_shape          ? "no shape"
                          : entry.offsets.size() != 2 ? "data_offsets are not two numbers"
                                                      : nullptr;
    return missing == nullptr ? Problem()
                              : fmt::format("tensor {}: {}", in_quotes(entry.name), missing);
  }
  Problem on_string(std::string& text) override {
    if (depth() == 1) return wrong("a text");
    if (!in_field()) return {};
    if (depth() != 2 || field() != "dtype") return wrong("a text");
    entries.back().type = std::move(text);
    return {};
  }
  Problem on_whole(uint64_t number) override {
    if (depth() == 1) return wrong("a number");
    if (!in_field()) return {};
    if (depth() != 3) return wrong("a number");
    std::vector<uint64_t>& list = key(2) == "shape" ? entries.back().shape : entries.back().offsets;
    list.push_back(number);
    if (list.size() > kMostDimensions)
      return fmt::format("tensor {}: {} has more than {} numbers", in_quotes(key(1)), key(2),
                         kMostDimensions);
    return {};
  }
  Problem on_other(const char* kind) override {
    return depth() == 1 || in_field() ? wrong(kind) : Problem();
  }

 private:
  static constexpr std::string_view kMetadata = "__metadata__";

  const std::string& field() const { return key(2); }
  /// Whether what happens is part of a field that counts.
  bool in_field() const {
    if (depth() < 2 || key(1) == kMetadata) return false;
    return key(2) == "dtype" || key(2) == "shape" || key(2) == "data_offsets";
  }
  Problem wrong(const char* kind) const {
    if (depth() == 1)
      return fmt::format("{}: expected an object, found {}", in_quotes(key(1)), kind);
    return fmt::format("tensor {}: {}: expected {}, found {}", in_quotes(key(1)), key(2),
                       key(2) == "dtype" ? "a text" : "an array of whole numbers", kind);
  }
};

/// Bytes of a tensor, or empty where they do not fit into 63 bits.
std::optional<uint64_t> bytes_of(const Entry& entry, int bits) {
  uint64_t total = static_cast<uint64_t>(bits);
  // A size of 0 makes any others harmless, but not the order in which they are multiplied.
  if (std::find(entry.shape.begin(), entry.shape.end(), 0u) != entry.shape.end()) return 0;
  for (uint64_t extent : entry.shape) {
    if (__builtin_mul_overflow(total, extent, &total)) return std::nullopt;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

std::string check_entry(const Entry& entry, uint64_t data_bytes) {
  const auto [begin, end] = std::pair(entry.offsets[0], entry.offsets[1]);
  if (begin > end) return fmt::format("data_offsets end before they begin: [{}, {}]", begin, end);
  if (end > data_bytes) {
    return fmt::format("data_offsets [{}, {}] reach beyond the file, which has {} bytes of data",
                       begin, end, data_bytes);
  }
  for (uint64_t extent : entry.shape) {
    if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return fmt::format("a size of {} in its shape", extent);
  }
  const std::optional<int> bits = stored_bits(entry.type);
  if (!bits) return {};
  const std::optional<uint64_t> bytes = bytes_of(entry, *bits);
  if (bytes && *bytes == end - begin) return {};
  return fmt::format("{} [{}] takes {} bytes, but its data_offsets [{}, {}] hold {}", entry.type,
                     fmt::join(entry.shape, ", "),
                     bytes ? std::to_string(*bytes) : "no whole number of", begin, end,
                     end - begin);
}

/// As the format demands: one after the other, from the first byte to the last.
std::string check_order(const std::vector<Entry>& sorted, uint64_t data_bytes) {
  uint64_t end = 0;
  const Entry* last = nullptr;
  for (const Entry& entry : sorted) {
    if (entry.offsets[0] < end) {
      return fmt::format("tensors {} and {} overlap: [{}, {}] and [{}, {}]", in_quotes(last->name),
                         in_quotes(entry.name), last->offsets[0], last->offsets[1],
                         entry.offsets[0], entry.offsets[1]);
    }
    if (entry.offsets[0] > end) {
      return fmt::format("bytes {} to {} of the data, before tensor {}, are no tensor's", end,
                         entry.offsets[0], in_quotes(entry.name));
    }
    end = entry.offsets[1];
    last = &entry;
  }
  if (end == data_bytes) return {};
  return fmt::format("the tensors take {} bytes, but the file has {} bytes of data", end,
                     data_bytes);
}

std::string check_names(const std::vector<Entry>& entries) {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? "" : fmt::format("tensor {} is there twice", in_quotes(*twice));
}

Error malformed(const std::string& path, const std::string& problem) {
  return {ErrorCode::kParse, fmt::format("{}: {}", path, problem),
          "is the file complete? Compare its size, or fetch it again"};
}

bool is_lfs_pointer(std::span<const std::byte> bytes) {
  constexpr std::string_view kBegin = "version https://git-lfs";
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
      .starts_with(kBegin);
}

/// The header's text.
Result<std::string_view> header_text(const std::string& path, std::span<const std::byte> bytes) {
  if (is_lfs_pointer(bytes)) {
    return Error{ErrorCode::kParse, fmt::format("{}: a Git LFS pointer, not the file", path),
                 "run `git lfs pull` in its folder"};
  }
  if (bytes.size() < kLengthBytes)
    return malformed(path,
                     fmt::format("{} bytes are too few for a safetensors file", bytes.size()));
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > kMaxHeaderBytes) {
    return malformed(path, fmt::format("its header claims {} bytes; the format allows {}", length,
                                       kMaxHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    return malformed(
        path, fmt::format("its header claims {} bytes, but the file has {}", length, bytes.size()));
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                          static_cast<size_t>(length));
}

}  // namespace

std::optional<int> stored_bits(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, int>, 21> kTypes = {
      {{"BF16", 16},   {"F16", 16},    {"F32", 32},       {"F8_E4M3", 8}, {"U8", 8},   {"I32", 32},
       {"I64", 64},    {"F64", 64},    {"F8_E5M2", 8},    {"F8_E8M0", 8}, {"I8", 8},   {"I16", 16},
       {"U16", 16},    {"U32", 32},    {"U64", 64},       {"BOOL", 8},    {"C64", 64}, {"F4", 4},
       {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}}};
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const auto& known) { return known.first == type; });
  if (found == kTypes.end()) return std::nullopt;
  return found->second;
}

std::string StoredTensor::text() const {
  return fmt::format("{}: {} is {} [{}]", file == nullptr ? "?" : file->path(), in_quotes(name),
                     type, fmt::join(shape, ", "));
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<std::unique_ptr<const SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
  MOETUNE_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::open(path));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, std::move(mapping)));
  MOETUNE_RETURN_IF_ERROR(file->read());
  return std::unique_ptr<const SafetensorsFile>(std::move(file));
}

Status SafetensorsFile::read() {
  const std::span<const std::byte> bytes = mapping_.bytes();
  MOETUNE_ASSIGN_OR_RETURN(const std::string_view text, header_text(path_, bytes));
  HeaderReader reader;
  MOETUNE_RETURN_IF_ERROR(read_json_events(text, path_ + ": header", reader));
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + text.size());

  std::vector<Entry>& entries = reader.entries;
  for (const Entry& entry : entries) {
    const std::string problem = check_entry(entry, data.size());
    if (!problem.empty())
      return malformed(path_, fmt::format("tensor {}: {}", in_quotes(entry.name), problem));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  for (const std::string& problem : {check_names(entries), check_order(entries, data.size())}) {
    if (!problem.empty()) return malformed(path_, problem);
  }
  tensors_.reserve(entries.size());
  for (Entry& entry : entries) {
    tensors_.push_back(
        {.name = std::move(entry.name),
         .type = std::move(entry.type),
         .shape = {entry.shape.begin(), entry.shape.end()},
         .bytes = data.subspan(entry.offsets[0], entry.offsets[1] - entry.offsets[0]),
         .file = this});
  }
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  return {};
}

}  // namespace moetune::checkpoint

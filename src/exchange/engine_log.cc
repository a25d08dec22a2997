#include "exchange/engine_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/system_error.h"

namespace moetune::exchange {
namespace {

constexpr size_t kMostOfALine = size_t{16} << 10;
constexpr size_t kMostFindings = 1024;

using LogOutcome = LogFinding::Outcome;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// What follows `mark`; nothing where it is not there.
std::optional<std::string_view> after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  return text.substr(at + mark.size());
}

/// The paths of tuning files in a message: "A", "A, B", "['A', 'B']". A path may have commas and
/// spaces of its own, so that only its end, ".json", is sure.
std::vector<std::string> paths_in(std::string_view text) {
  constexpr std::string_view kEnd = ".json";
  constexpr std::string_view kBetween = " ,[]'\"";
  std::vector<std::string> paths;
  for (size_t end = text.find(kEnd); end != std::string_view::npos; end = text.find(kEnd)) {
    std::string_view path = text.substr(0, end + kEnd.size());
    text.remove_prefix(path.size());
    path.remove_prefix(std::min(path.find_first_not_of(kBetween), path.size()));
    if (parse_table_name(path).ok()) paths.emplace_back(path);
  }
  return paths;
}

// SGLang began as a copy of vLLM's kernels, with its words.
Engine engine_of(std::string_view line) {
  const bool is_sglang = has(line, "MoE kernel config") || has(line, "Down MoE config") ||
                         has(line, "/sglang/") || has(line, "sgl-project");
  return is_sglang ? Engine::kSglang : Engine::kVllm;
}

std::optional<LogFinding> make_finding(std::string_view line, LogOutcome outcome,
                                       std::vector<std::string> looked_for, std::string used) {
  auto name = parse_table_name(looked_for.empty() ? used : looked_for.front());
  if (!name.ok()) return std::nullopt;
  return LogFinding{.engine = engine_of(line),
                    .outcome = outcome,
                    .name = std::move(*name),
                    .looked_for = std::move(looked_for),
                    .used = std::move(used)};
}

/// "Config file not found at A. Fallback to triton version V and use MoE kernel config from B."
std::optional<LogFinding> other_triton(std::string_view line, std::string_view rest) {
  const std::vector<std::string> missing = paths_in(rest.substr(0, rest.find("Fallback")));
  const auto second = after(rest, "config from ");
  const std::vector<std::string> used = second ? paths_in(*second) : std::vector<std::string>{};
  if (missing.empty() || used.empty()) return std::nullopt;
  return make_finding(line, LogOutcome::kOtherTriton, missing, used.front());
}

std::optional<LogFinding> not_found(std::string_view line, std::string_view rest) {
  if (has(rest, "Fallback to triton version")) return other_triton(line, rest);
  if (!has(line, "MoE")) return std::nullopt;  // Other kernels have such files, too.
  std::vector<std::string> paths = paths_in(rest);
  if (paths.empty()) return std::nullopt;
  const auto name = parse_table_name(paths.front());
  const bool is_second = name.ok() && name->is_down;
  return make_finding(line, is_second ? LogOutcome::kFirstGemm : LogOutcome::kDefault,
                      std::move(paths), "");
}

std::optional<LogFinding> finding_of(std::string_view line) {
  // "Config file not found at", and "Down MoE config file not found at".
  if (const auto rest = after(line, "onfig file not found at ")) return not_found(line, *rest);
  for (const char* mark : {"Using configuration from ", "Using MoE kernel config from "}) {
    const auto rest = after(line, mark);
    if (!rest) continue;
    std::vector<std::string> paths = paths_in(*rest);
    if (!paths.empty()) return make_finding(line, LogOutcome::kFound, {}, std::move(paths.front()));
  }
  return std::nullopt;
}

}  // namespace

const char* to_string(LogOutcome outcome) {
  switch (outcome) {
    case LogOutcome::kFound: return "found";
    case LogOutcome::kOtherTriton: return "other_triton";
    case LogOutcome::kFirstGemm: return "first_gemm";
    case LogOutcome::kDefault: return "default";
  }
  return "default";
}

void EngineLog::add_line(std::string_view line) {
  ++lines_;
  if (auto finding = finding_of(line.substr(0, kMostOfALine))) add(std::move(*finding));
}

void EngineLog::add(LogFinding finding) {
  finding.lines = 1;
  const auto same = [&](const LogFinding& other) {
    return other.engine == finding.engine && other.outcome == finding.outcome &&
           other.name == finding.name && other.looked_for == finding.looked_for &&
           other.used == finding.used;
  };
  const auto it = std::find_if(findings_.begin(), findings_.end(), same);
  if (it != findings_.end()) {
    ++it->lines;
  } else if (findings_.size() < kMostFindings) {
    findings_.push_back(std::move(finding));
  } else {
    ++dropped_;
  }
}

Result<EngineLog> read_engine_log(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is a folder", path),
                 "name the file that the server's output went to"};
  }
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 fmt::format("cannot open {}: {}", path, error_text(errno)),
                 "name the file that the server's output went to"};
  }
  EngineLog log;
  std::string line;
  char block[1 << 16];
  size_t count = 0;
  while ((count = std::fread(block, 1, sizeof(block), file.get())) > 0) {
    for (std::string_view rest(block, count); !rest.empty();) {
      const size_t end = rest.find('\n');
      const std::string_view part = rest.substr(0, end);
      line.append(part.substr(0, kMostOfALine - std::min(line.size(), kMostOfALine)));
      if (end == std::string_view::npos) break;
      log.add_line(line);
      line.clear();
      rest.remove_prefix(end + 1);
    }
  }
  if (std::ferror(file.get()) != 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot read {}: {}", path, error_text(errno)), ""};
  }
  if (!line.empty()) log.add_line(line);
  return log;
}

}  // namespace moetune::exchange

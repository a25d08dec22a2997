#include "cuda/compile.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <sstream>
#include <string_view>

namespace moetune::cuda {
namespace {

class Program {
 public:
  Program(const Nvrtc& nvrtc, const CompileJob& job) : nvrtc_(nvrtc) {
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const NamedText& header : job.headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
    }
    result_ = nvrtc.nvrtcCreateProgram(&handle_, job.source.c_str(), "moetune.cu",
                                       static_cast<int>(texts.size()), texts.data(), names.data());
    for (const std::string& kernel : job.kernels) {
      if (result_ == 0) result_ = nvrtc.nvrtcAddNameExpression(handle_, kernel.c_str());
    }
  }
  ~Program() {
    if (handle_) nvrtc_.nvrtcDestroyProgram(&handle_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    if (result_ == 0)
      result_ = nvrtc_.nvrtcCompileProgram(handle_, static_cast<int>(texts.size()), texts.data());
    return result_;
  }

  std::string log() const {
    size_t size = 0;
    if (!handle_ || nvrtc_.nvrtcGetProgramLogSize(handle_, &size) != 0 || size == 0) return {};
    std::string text(size, '\0');
    nvrtc_.nvrtcGetProgramLog(handle_, text.data());
    text.resize(text.find_last_not_of('\0') + 1);
    return text;
  }

  bool read_symbol(const std::string& kernel, std::string& symbol) {
    const char* lowered = nullptr;
    result_ = nvrtc_.nvrtcGetLoweredName(handle_, kernel.c_str(), &lowered);
    if (result_ == 0) symbol = lowered;
    return result_ == 0;
  }

  bool read_cubin(std::vector<std::byte>& cubin) {
    size_t size = 0;
    result_ = nvrtc_.nvrtcGetCUBINSize(handle_, &size);
    if (result_ != 0) return false;
    cubin.resize(size);
    result_ = nvrtc_.nvrtcGetCUBIN(handle_, reinterpret_cast<char*>(cubin.data()));
    return result_ == 0;
  }

  const char* words() const { return nvrtc_.nvrtcGetErrorString(result_); }

 private:
  const Nvrtc& nvrtc_;
  nvrtcProgram handle_ = nullptr;
  nvrtcResult result_ = 0;
};

// The number that ends right before `unit` in `line`: 32 for "Used 32 registers" and " registers".
std::optional<int> number_before(std::string_view line, std::string_view unit) {
  const size_t end = line.find(unit);
  if (end == std::string_view::npos) return std::nullopt;
  size_t start = end;
  while (start > 0 && line[start - 1] >= '0' && line[start - 1] <= '9') --start;
  int value = 0;
  const auto parsed = std::from_chars(line.data() + start, line.data() + end, value);
  if (parsed.ec != std::errc() || start == end) return std::nullopt;
  return value;
}

// What stands between two quotes after `start` in `line`.
std::string_view between(std::string_view line, std::string_view start, std::string_view end) {
  const size_t at = line.find(start);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + start.size());
  return line.substr(0, line.find(end));
}

}  // namespace

CompileOutcome run_compiler(const Nvrtc& nvrtc, const CompileJob& job) {
  const auto start = std::chrono::steady_clock::now();
  CompileOutcome outcome;
  Program program(nvrtc, job);
  outcome.ok = program.compile(job.options) == 0;
  outcome.log = program.log();
  outcome.symbols.resize(job.kernels.size());
  for (size_t i = 0; outcome.ok && i < job.kernels.size(); ++i) {
    outcome.ok = program.read_symbol(job.kernels[i], outcome.symbols[i]);
  }
  if (outcome.ok) outcome.ok = program.read_cubin(outcome.cubin);
  if (!outcome.ok) outcome.log += std::string(outcome.log.empty() ? "" : "\n") + program.words();
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

std::vector<KernelResources> parse_resources(const std::string& log,
                                             const std::vector<std::string>& symbols) {
  std::vector<KernelResources> all(symbols.size());
  const auto find = [&](std::string_view symbol) -> KernelResources* {
    const auto found = std::find(symbols.begin(), symbols.end(), symbol);
    return found == symbols.end() ? nullptr : &all[static_cast<size_t>(found - symbols.begin())];
  };
  // ptxas names the kernel, then reports on the functions it calls and on itself, then totals the
  // kernel's registers.
  KernelResources* entry = nullptr;
  KernelResources* function = nullptr;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Compiling entry function") != std::string::npos) {
      entry = find(between(line, "entry function '", "'"));
    } else if (line.find("Function properties for") != std::string::npos) {
      function = find(between(line, "Function properties for ", " "));
    } else if (function && line.find("bytes stack frame") != std::string::npos) {
      function->stack_bytes = number_before(line, " bytes stack frame").value_or(0);
      function->spill_store_bytes = number_before(line, " bytes spill stores").value_or(0);
      function->spill_load_bytes = number_before(line, " bytes spill loads").value_or(0);
    } else if (entry && line.find(": Used ") != std::string::npos) {
      entry->registers = number_before(line, " registers").value_or(0);
      entry->static_shared_bytes = number_before(line, " bytes smem").value_or(0);
    }
  }
  return all;
}

std::string first_errors(const std::string& log, int max_lines) {
  std::istringstream lines(log);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) all.push_back(std::move(line));
  }
  const auto is_error = [](const std::string& line) {
    return line.find("error") != std::string::npos;
  };
  auto from = std::find_if(all.begin(), all.end(), is_error);
  if (from == all.end()) from = all.begin();
  std::string text;
  for (int taken = 0; from != all.end() && taken < max_lines; ++from, ++taken) {
    text += (taken ? "\n  " : "") + *from;
  }
  if (from != all.end()) text += "\n  ...";
  return text;
}

}  // namespace moetune::cuda

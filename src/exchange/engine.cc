#include "exchange/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace moetune::exchange {
namespace {

using ParameterKind = EngineParameter::Kind;

// The first vLLM that gives all boards of the H200 family the name of one.
const Version kOneH200{{0, 11, 1}};
// The first vLLM that takes "triton_version" out before it reads numbers of tokens.
const Version kNamesTriton{{0, 11, 0}};

std::vector<EngineParameter> with_common(std::vector<EngineParameter> own) {
  std::vector<EngineParameter> all = {{"BLOCK_SIZE_M", ParameterKind::kNumber, true},
                                      {"BLOCK_SIZE_N", ParameterKind::kNumber, true},
                                      {"BLOCK_SIZE_K", ParameterKind::kNumber, true},
                                      {"GROUP_SIZE_M", ParameterKind::kNumber, true},
                                      {"num_warps"},
                                      {"num_stages"},
                                      {"num_ctas"},
                                      {"waves_per_eu"},
                                      {"matrix_instr_nonkdim"},
                                      {"kpack"}};
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

// A vLLM name has at most one underscore where there was space or a slash.
std::string vllm_file_name(std::string_view device) {
  std::string name;
  bool in_gap = false;
  for (const char c : device) {
    const bool is_gap = c == ' ' || c == '/' || (c >= '\t' && c <= '\r');
    if (!is_gap) name += c;
    if (is_gap && !in_gap) name += '_';
    in_gap = is_gap;
  }
  return name;
}

bool has_part(std::string_view name, std::string_view part) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('_', begin), name.size());
    if (name.substr(begin, end - begin) == part) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::string Version::text() const { return fmt::format("{}", fmt::join(numbers, ".")); }

std::optional<Version> parse_version(std::string_view text) {
  constexpr size_t kMostNumbers = 8;
  Version version;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end && *at >= '0' && *at <= '9') {
    int number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc() || version.numbers.size() == kMostNumbers) return std::nullopt;
    version.numbers.push_back(number);
    at = after;
    if (at == end || *at != '.') break;
    ++at;
  }
  if (!version.known()) return std::nullopt;
  return version;
}

const EngineFacts& facts_of(Engine engine) {
  static const EngineFacts kVllm{"vLLM", "vllm", "vllm.triton", "VLLM_TUNED_CONFIG_FOLDER",
                                 with_common({{"SPLIT_K"}, {"grf_mode", ParameterKind::kWord}})};
  static const EngineFacts kSglang{"SGLang", "sglang", "sglang.triton", "SGLANG_MOE_CONFIG_DIR",
                                   with_common({{"USE_TMA", ParameterKind::kSwitch}})};
  return engine == Engine::kVllm ? kVllm : kSglang;
}

const EngineParameter* find_parameter(Engine engine, std::string_view name) {
  const std::vector<EngineParameter>& all = facts_of(engine).parameters;
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const EngineParameter& one) { return one.name == name; });
  return it == all.end() ? nullptr : &*it;
}

std::string device_file_name(Engine engine, std::string_view device, const Version& version) {
  if (engine == Engine::kSglang) {
    std::string name(device);
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  }
  std::string name = vllm_file_name(device);
  const bool is_one_h200 = !version.known() || version >= kOneH200;
  return is_one_h200 && has_part(name, "H200") ? "NVIDIA_H200" : name;
}

bool may_name_triton(Engine engine, const Version& version) {
  return engine == Engine::kVllm && version.known() && version >= kNamesTriton;
}

}  // namespace moetune::exchange

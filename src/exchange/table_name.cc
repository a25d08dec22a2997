#include "exchange/table_name.h"

#include <fmt/format.h>

#include <charconv>

namespace moetune::exchange {
namespace {

constexpr int64_t kFp8Block = 128;
constexpr std::string_view kSuffix = ".json";
constexpr std::string_view kDown = "_down";

/// Takes `prefix` off the front; false, and nothing taken, where it is not there.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool take_number(std::string_view& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number <= 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take_block_shape(std::string_view& text, TableName& name) {
  std::array<int64_t, 2> shape{};
  if (!take_number(text, shape[0]) || !take(text, ",")) return false;
  take(text, " ");
  if (!take_number(text, shape[1]) || !take(text, "]")) return false;
  name.block_shape = shape;
  return true;
}

/// What follows the device's name: parts that may each be there once, in this order.
bool take_rest(std::string_view text, TableName& name) {
  if (take(text, ",dtype=")) {
    name.dtype = text.substr(0, text.find(','));
    text.remove_prefix(name.dtype.size());
    if (name.dtype.empty()) return false;
  }
  if (take(text, ",block_shape=[") && !take_block_shape(text, name)) return false;
  name.per_channel = take(text, ",per_channel_quant=True");
  return text.empty();
}

bool read(std::string_view text, TableName& name) {
  if (!text.ends_with(kSuffix)) return false;
  text.remove_suffix(kSuffix.size());
  if (text.ends_with(kDown)) {
    name.is_down = true;
    text.remove_suffix(kDown.size());
  }
  if (!take(text, "E=") || !take_number(text, name.experts)) return false;
  if (!take(text, ",N=") || !take_number(text, name.intermediate)) return false;
  if (!take(text, ",device_name=")) return false;
  name.device = text.substr(0, text.find(','));
  text.remove_prefix(name.device.size());
  return take_rest(text, name);
}

}  // namespace

std::string TableName::text(Engine engine) const {
  std::string text = fmt::format("E={},N={},device_name={}", experts, intermediate, device);
  if (!dtype.empty()) text += ",dtype=" + dtype;
  // SGLang prints a list as Python does; vLLM takes the space out.
  const char* const comma = engine == Engine::kVllm ? "," : ", ";
  if (block_shape)
    text += fmt::format(",block_shape=[{}{}{}]", (*block_shape)[0], comma, (*block_shape)[1]);
  if (per_channel) text += ",per_channel_quant=True";
  if (is_down) text += kDown;
  return text + std::string(kSuffix);
}

std::string TableName::shape_text() const {
  std::string text = fmt::format("E={}, N={}, {}", experts, intermediate,
                                 dtype.empty() ? "16-bit weights" : dtype);
  if (block_shape) text += fmt::format(", blocks of {}x{}", (*block_shape)[0], (*block_shape)[1]);
  if (per_channel) text += ", a scale per channel";
  if (is_down) text += ", second GEMM";
  return text;
}

Result<TableName> parse_table_name(std::string_view path) {
  const std::string_view text = path.substr(path.rfind('/') + 1);
  TableName name;
  if (read(text, name)) return name;
  return Error{ErrorCode::kParse,
               fmt::format("\"{}\" is not named like a tuning file", text.substr(0, 200)),
               "such names look like E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"};
}

Result<TableName> table_name_of(const FusedMoeSpec& spec, Engine engine, const std::string& device,
                                const Version& version) {
  TableName name;
  name.experts = spec.held_experts();
  name.intermediate = spec.intermediate;
  name.device = device_file_name(engine, device, version);
  switch (spec.weights) {
    case WeightFormat::kBf16:
    case WeightFormat::kFp16: return name;
    case WeightFormat::kFp8Block: name.block_shape = {kFp8Block, kFp8Block}; [[fallthrough]];
    case WeightFormat::kFp8: name.dtype = "fp8_w8a8"; return name;
    default: break;
  }
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} does not run {} weights with the Triton kernel that reads tuning "
                           "files",
                           facts_of(engine).title, to_string(spec.weights)),
               "such files exist for bf16, fp16, fp8 and fp8-block weights"};
}

}  // namespace moetune::exchange

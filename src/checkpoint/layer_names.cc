#include "checkpoint/layer_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/status_macros.h"

namespace moetune::checkpoint {

namespace {

// Multimodal models keep their language model one level down, each in its own way; a model that was
// saved without its head begins with its layers.
constexpr std::array kLayerPrefixes = {
    "model.layers.{}.",
    "model.language_model.layers.{}.",
    "language_model.model.layers.{}.",
    "language_model.layers.{}.",
    "backbone.layers.{}.",
    "layers.{}.",
};
constexpr std::array kBlocks = {"mlp.", "block_sparse_moe.", "feed_forward.", "mixer."};

bool is_shape(const StoredTensor& tensor, std::initializer_list<int64_t> shape) {
  return std::equal(tensor.shape.begin(), tensor.shape.end(), shape.begin(), shape.end());
}

std::optional<LayerNames> names_under(const Checkpoint& checkpoint, const std::string& prefix) {
  const auto has = [&](const char* rest) { return checkpoint.has_any(prefix + rest); };
  if (has("experts.0.up_proj.")) return LayerNames{prefix, {"gate_proj", "up_proj", "down_proj"}};
  if (has("experts.0.w1.")) return LayerNames{prefix, {"w1", "w3", "w2"}};
  if (has("experts.gate_up_proj")) {
    return LayerNames{prefix,
                      {"experts.gate_up_proj", "experts.gate_up_proj", "experts.down_proj"},
                      /*is_stacked=*/true};
  }
  if (has("input_linear.")) {
    return LayerNames{
        prefix, {"input_linear", "input_linear", "output_linear"}, /*is_stacked=*/true};
  }
  return std::nullopt;
}

/// Which way round stacked matrices are. Where a shape fits both ways, families decide.
Status find_arrangement(Checkpoint& checkpoint, const ModelSpec& model, LayerNames& names) {
  const bool is_gpt_oss = model.family == "gpt_oss";
  names.takes_turns = is_gpt_oss;
  const std::string plain = names.matrix(0, kGate);
  if (!checkpoint.has(plain)) return {};  // Quantised, or ".weight": rows.
  if (is_gpt_oss) {
    names.is_transposed = true;
    return {};
  }
  MOETUNE_ASSIGN_OR_RETURN(const StoredTensor* tensor, checkpoint.find(plain));
  const bool fits_rows = is_shape(*tensor, {model.experts, 2 * model.intermediate, model.hidden});
  const bool fits_columns =
      is_shape(*tensor, {model.experts, model.hidden, 2 * model.intermediate});
  names.is_transposed = fits_columns && (!fits_rows || model.family.starts_with("qwen3_vl_moe"));
  return {};
}

Error unsupported(const StoredTensor& tensor, std::string_view why) {
  return {ErrorCode::kUnsupported, fmt::format("{}: {}", tensor.text(), why),
          "experts may be bf16, fp16, fp8 (per tensor or by blocks of 128x128), nvfp4 or mxfp4"};
}

/// A scale of one byte says by its type which of the two block formats it is.
Result<StoredFormat> four_bits(Checkpoint& checkpoint, const std::string& matrix,
                               const StoredTensor& values, StoredFormat stored) {
  stored.scales = ".weight_scale";
  MOETUNE_ASSIGN_OR_RETURN(const StoredTensor* scales, checkpoint.find(matrix + stored.scales));
  stored.evidence = fmt::format("{}, with {}", values.text(), scales->text());
  if (scales->type == "U8" || scales->type == "F8_E8M0") {
    stored.format = WeightFormat::kMxfp4;
    return stored;
  }
  if (scales->type != "F8_E4M3") return unsupported(*scales, "not a scale of nvfp4 or mxfp4");
  stored.format = WeightFormat::kNvfp4;
  stored.global_divides = checkpoint.has(matrix + ".weight_global_scale");
  stored.global = stored.global_divides ? ".weight_global_scale" : ".weight_scale_2";
  return stored;
}

Result<StoredFormat> eight_bits(Checkpoint& checkpoint, const std::string& matrix,
                                const StoredTensor& values, StoredFormat stored) {
  const bool is_inverse_name = checkpoint.has(matrix + ".weight_scale_inv");
  const std::string suffix = is_inverse_name ? ".weight_scale_inv" : ".weight_scale";
  MOETUNE_ASSIGN_OR_RETURN(const StoredTensor* scales, checkpoint.find(matrix + suffix));
  stored.evidence = fmt::format("{}, with {}", values.text(), scales->text());
  const bool one_scale = is_shape(*scales, {}) || is_shape(*scales, {1});
  const bool per_row = scales->shape.size() == 2 && values.shape.size() == 2 &&
                       scales->shape[0] == values.shape[0] && values.shape[0] > 1;
  if (one_scale) {
    stored.format = WeightFormat::kFp8;
    stored.global = suffix;
    return stored;
  }
  if (per_row) return unsupported(*scales, "a scale for each row");
  stored.format = WeightFormat::kFp8Block;
  stored.scales = suffix;
  return stored;
}

Result<StoredFormat> by_values(Checkpoint& checkpoint, const std::string& matrix,
                               StoredFormat stored) {
  MOETUNE_ASSIGN_OR_RETURN(const StoredTensor* values, checkpoint.find(matrix + stored.values));
  stored.evidence = values->text();
  if (values->type == "BF16" || values->type == "F32") return stored;
  if (values->type == "F16") {
    stored.format = WeightFormat::kFp16;
    return stored;
  }
  if (values->type == "F8_E4M3") return eight_bits(checkpoint, matrix, *values, stored);
  if (values->type == "U8") return four_bits(checkpoint, matrix, *values, stored);
  return unsupported(*values, "a type that experts are not read from");
}

}  // namespace

std::string LayerNames::matrix(int64_t expert, Role role) const {
  if (is_stacked) return prefix + own[role];
  return fmt::format("{}experts.{}.{}", prefix, expert, own[role]);
}

Result<LayerNames> find_layer(Checkpoint& checkpoint, const ModelSpec& model, int64_t layer) {
  bool has_layer = false;
  for (const char* pattern : kLayerPrefixes) {
    const std::string prefix = fmt::format(fmt::runtime(pattern), layer);
    has_layer |= checkpoint.has_any(prefix);
    for (const char* block : kBlocks) {
      std::optional<LayerNames> names = names_under(checkpoint, prefix + block);
      if (!names) continue;
      if (names->is_stacked) MOETUNE_RETURN_IF_ERROR(find_arrangement(checkpoint, model, *names));
      return *std::move(names);
    }
  }
  const std::string first =
      model.dense_first > 0 && layer < model.dense_first
          ? fmt::format("the first layer with experts is {}; ", model.dense_first)
          : std::string();
  return Error{ErrorCode::kNotFound,
               fmt::format("{}: {} {}", checkpoint.folder(),
                           has_layer ? "no experts in layer" : "no layer", layer),
               fmt::format("{}experts are looked for as model.layers.{}.mlp.experts.0.up_proj, "
                           "....block_sparse_moe.experts.0.w1, ....mlp.experts.gate_up_proj and "
                           "....block_sparse_moe.input_linear",
                           first, layer)};
}

Result<StoredFormat> find_format(Checkpoint& checkpoint, const LayerNames& names, int64_t expert) {
  const std::string matrix = names.matrix(expert, kDown);
  if (checkpoint.has(matrix + "_blocks")) {
    MOETUNE_ASSIGN_OR_RETURN(const StoredTensor* blocks, checkpoint.find(matrix + "_blocks"));
    return StoredFormat{.format = WeightFormat::kMxfp4,
                        .values = "_blocks",
                        .scales = "_scales",
                        .evidence = blocks->text()};
  }
  if (names.is_stacked && checkpoint.has(matrix))
    return by_values(checkpoint, matrix, {.values = ""});
  if (checkpoint.has(matrix + ".weight_packed")) {
    MOETUNE_ASSIGN_OR_RETURN(const StoredTensor* packed,
                             checkpoint.find(matrix + ".weight_packed"));
    if (packed->type != "U8")
      return unsupported(*packed, "not pairs of 4-bit floating-point codes");
    return four_bits(checkpoint, matrix, *packed, {.values = ".weight_packed"});
  }
  if (checkpoint.has(matrix + ".weight"))
    return by_values(checkpoint, matrix, {.values = ".weight"});
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: no tensor \"{}.weight\", nor one of another name that is known",
                           checkpoint.folder(), matrix),
               "experts may be bf16, fp16, fp8 (per tensor or by blocks of 128x128), nvfp4 or "
               "mxfp4; GPTQ, AWQ and others are not read"};
}

}  // namespace moetune::checkpoint

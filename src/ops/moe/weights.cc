#include "ops/moe/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "base/status_macros.h"
#include "ops/moe/number_formats.h"

namespace moetune {

namespace {

Result<const void*> checked(const Tensors& chunk, std::string_view name, DataType type,
                            const std::vector<int64_t>& shape) {
  const Tensor* tensor = find(chunk, name);
  if (tensor == nullptr || tensor->data == nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: an expert's weights have no tensor '{}'", name),
                 fmt::format("it is {} [{}]", to_string(type), fmt::join(shape, ", "))};
  }
  if (tensor->type != type || tensor->shape != shape) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: weight tensor '{}' is {} [{}], not {} [{}]", name,
                             to_string(tensor->type), fmt::join(tensor->shape, ", "),
                             to_string(type), fmt::join(shape, ", ")),
                 "weights must fit the specification"};
  }
  return static_cast<const void*>(tensor->data);
}

Status view_nvfp4_scales(const FusedMoeSpec& spec, const Tensors& chunk, ExpertWeights& view) {
  MOETUNE_ASSIGN_OR_RETURN(const void* w13_scales,
                           checked(chunk, "w13_scales", DataType::kF8E4M3,
                                   {spec.w13_rows(), nvfp4_blocks(spec.hidden)}));
  MOETUNE_ASSIGN_OR_RETURN(const void* w2_scales,
                           checked(chunk, "w2_scales", DataType::kF8E4M3,
                                   {spec.hidden, nvfp4_blocks(spec.intermediate)}));
  MOETUNE_ASSIGN_OR_RETURN(const void* w13_global,
                           checked(chunk, "w13_global", DataType::kF32, {2}));
  MOETUNE_ASSIGN_OR_RETURN(const void* w2_global, checked(chunk, "w2_global", DataType::kF32, {1}));
  view.w13_scales = static_cast<const uint8_t*>(w13_scales);
  view.w2_scales = static_cast<const uint8_t*>(w2_scales);
  view.gate_global = static_cast<const float*>(w13_global)[0];
  view.up_global = static_cast<const float*>(w13_global)[1];
  view.down_global = *static_cast<const float*>(w2_global);
  return {};
}

Status view_biases(const FusedMoeSpec& spec, const Tensors& chunk, ExpertWeights& view) {
  MOETUNE_ASSIGN_OR_RETURN(const void* w13_bias,
                           checked(chunk, "w13_bias", DataType::kF32, {spec.w13_rows()}));
  MOETUNE_ASSIGN_OR_RETURN(const void* w2_bias,
                           checked(chunk, "w2_bias", DataType::kF32, {spec.hidden}));
  view.w13_bias = static_cast<const float*>(w13_bias);
  view.w2_bias = static_cast<const float*>(w2_bias);
  return {};
}

}  // namespace

Result<ExpertWeights> view_expert(const FusedMoeSpec& spec, const Tensors& chunk) {
  const bool nvfp4 = spec.weights == WeightFormat::kNvfp4;
  if (!nvfp4 && spec.weights != WeightFormat::kBf16) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("fused_moe: no reference for {} weights", to_string(spec.weights)),
                 "use bf16 or nvfp4"};
  }
  const DataType type = nvfp4 ? DataType::kE2M1x2 : DataType::kBf16;
  ExpertWeights view;
  MOETUNE_ASSIGN_OR_RETURN(view.w13, checked(chunk, "w13", type, {spec.w13_rows(), spec.hidden}));
  MOETUNE_ASSIGN_OR_RETURN(view.w2, checked(chunk, "w2", type, {spec.hidden, spec.intermediate}));
  if (nvfp4) MOETUNE_RETURN_IF_ERROR(view_nvfp4_scales(spec, chunk, view));
  if (spec.bias) MOETUNE_RETURN_IF_ERROR(view_biases(spec, chunk, view));
  return view;
}

FusedMoeSpec exact_variant(FusedMoeSpec spec) {
  if (spec.gated()) spec.activation = Activation::kGatePlusUp;
  spec.given_routing = true;
  return spec;
}

}  // namespace moetune

#include "ops/moe/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "base/status_macros.h"
#include "ops/moe/format.h"

namespace moetune {

namespace {

Status check_tensor(const Tensors& chunk, const Tensor& wanted) {
  const Tensor* tensor = find(chunk, wanted.name);
  if (tensor == nullptr || tensor->data == nullptr) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("fused_moe: an expert's weights have no tensor '{}'", wanted.name),
        fmt::format("it is {} [{}]", to_string(wanted.type), fmt::join(wanted.shape, ", "))};
  }
  if (tensor->type != wanted.type || tensor->shape != wanted.shape) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: weight tensor '{}' is {} [{}], not {} [{}]", wanted.name,
                             to_string(tensor->type), fmt::join(tensor->shape, ", "),
                             to_string(wanted.type), fmt::join(wanted.shape, ", ")),
                 "weights must fit the specification"};
  }
  return {};
}

}  // namespace

Result<ExpertWeights> view_expert(const FusedMoeSpec& spec, const Tensors& chunk) {
  for (const Tensor& wanted : expert_tensors(spec))
    MOETUNE_RETURN_IF_ERROR(check_tensor(chunk, wanted));
  const FormatParts parts = format_parts(spec.weights);
  const auto data = [&chunk](const char* name, bool there) -> const void* {
    return there ? find(chunk, name)->data : nullptr;
  };
  const auto floats = [&data](const char* name, bool there) {
    return static_cast<const float*>(data(name, there));
  };
  ExpertWeights view;
  view.w13 = data("w13", true);
  view.w2 = data("w2", true);
  view.w13_scales = data("w13_scales", parts.scales.has_value());
  view.w2_scales = data("w2_scales", parts.scales.has_value());
  if (parts.has_global) {
    view.gate_global = floats("w13_global", true)[0];
    view.up_global = floats("w13_global", true)[1];
    view.down_global = *floats("w2_global", true);
  }
  view.w13_bias = floats("w13_bias", spec.bias);
  view.w2_bias = floats("w2_bias", spec.bias);
  return view;
}

FusedMoeSpec exact_variant(FusedMoeSpec spec) {
  if (spec.gated()) spec.activation = Activation::kGatePlusUp;
  spec.activations = ActivationFormat::kA16;
  spec.given_routing = true;
  return spec;
}

}  // namespace moetune

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "base/integers.h"
#include "base/status_macros.h"
#include "moetune/moe_spec.h"

namespace moetune {

namespace {

template <typename Enum, size_t N>
using Names = std::array<std::pair<Enum, const char*>, N>;

constexpr Names<WeightFormat, 6> kWeightFormats{{{WeightFormat::kBf16, "bf16"},
                                                 {WeightFormat::kFp16, "fp16"},
                                                 {WeightFormat::kFp8, "fp8"},
                                                 {WeightFormat::kFp8Block, "fp8-block"},
                                                 {WeightFormat::kNvfp4, "nvfp4"},
                                                 {WeightFormat::kMxfp4, "mxfp4"}}};
constexpr Names<ActivationFormat, 3> kActivationFormats{{{ActivationFormat::kA16, "a16"},
                                                         {ActivationFormat::kFp8Block, "fp8-block"},
                                                         {ActivationFormat::kFp8, "fp8"}}};
constexpr Names<Activation, 4> kActivations{{{Activation::kSwiGlu, "swiglu"},
                                             {Activation::kSwiGluClamped, "swiglu-clamped"},
                                             {Activation::kRelu2, "relu2"},
                                             {Activation::kGatePlusUp, "gate-plus-up"}}};
constexpr Names<Score, 3> kScores{{{Score::kSoftmax, "softmax"},
                                   {Score::kSigmoid, "sigmoid"},
                                   {Score::kSqrtSoftplus, "sqrt-softplus"}}};

template <typename Enum, size_t N>
const char* name_of(const Names<Enum, N>& names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "?";
}

template <typename Enum, size_t N>
std::optional<Enum> value_of(const Names<Enum, N>& names, std::string_view text) {
  for (const auto& [value, name] : names) {
    if (text == name) return value;
  }
  return std::nullopt;
}

Error invalid(std::string message, std::string hint = {}) {
  return {ErrorCode::kInvalidArgument, "fused_moe: " + std::move(message), std::move(hint)};
}

Status check_range(const char* name, int64_t value, int64_t high) {
  if (value >= 1 && value <= high) return {};
  return invalid(fmt::format("{} is {}; it must be from 1 to {}", name, value, high));
}

Status check_sizes(const FusedMoeSpec& spec) {
  MOETUNE_RETURN_IF_ERROR(check_range("hidden", spec.hidden, kMaxMoeDimension));
  MOETUNE_RETURN_IF_ERROR(check_range("intermediate", spec.intermediate, kMaxMoeDimension));
  MOETUNE_RETURN_IF_ERROR(check_range("global_experts", spec.global_experts, kMaxMoeExperts));
  MOETUNE_RETURN_IF_ERROR(check_range("experts", spec.experts, spec.global_experts));
  MOETUNE_RETURN_IF_ERROR(
      check_range("top_k", spec.top_k, std::min<int64_t>(kMaxMoeTopK, spec.global_experts)));
  MOETUNE_RETURN_IF_ERROR(check_range("tp", spec.tp, kMaxMoeDimension));
  MOETUNE_RETURN_IF_ERROR(check_range("ep", spec.ep, spec.global_experts));
  if (spec.ep == 1 && spec.experts != spec.global_experts) {
    return invalid(
        fmt::format("{} of {} experts are held, but ep is 1", spec.experts, spec.global_experts),
        "set ep to the number of ranks that share the experts");
  }
  if (spec.shared_experts < 0 || spec.shared_experts > kMaxMoeShared) {
    return invalid(fmt::format("shared_experts is {}; it must be from 0 to {}", spec.shared_experts,
                               kMaxMoeShared));
  }
  if (spec.shared_experts > 0 && spec.ep > 1) {
    return invalid("shared experts are part of the operator only where ep is 1",
                   "with expert parallelism, run them as a layer of their own");
  }
  const bool two_per_byte =
      spec.weights == WeightFormat::kNvfp4 || spec.weights == WeightFormat::kMxfp4;
  if (two_per_byte && (spec.hidden % 2 != 0 || spec.intermediate % 2 != 0)) {
    return invalid(fmt::format("hidden {} and intermediate {} must be even with {} weights, which "
                               "hold two values a byte",
                               spec.hidden, spec.intermediate, to_string(spec.weights)),
                   "with tensor parallelism, split intermediate on block boundaries");
  }
  return {};
}

Status check_router(const FusedMoeSpec& spec) {
  const RouterSpec& router = spec.router;
  MOETUNE_RETURN_IF_ERROR(check_range("router.groups", router.groups, kMaxMoeGroups));
  MOETUNE_RETURN_IF_ERROR(check_range("router.top_groups", router.top_groups, router.groups));
  if (spec.global_experts % router.groups != 0) {
    return invalid(fmt::format("{} experts do not divide into {} equal groups", spec.global_experts,
                               router.groups));
  }
  const int64_t eligible = spec.global_experts / router.groups * router.top_groups;
  if (eligible < spec.top_k) {
    return invalid(fmt::format("top_k is {}, but the best {} of {} groups have only {} experts",
                               spec.top_k, router.top_groups, router.groups, eligible));
  }
  if (!std::isfinite(router.scale) || router.scale <= 0) {
    return invalid(fmt::format("router.scale is {}; it must be a positive number", router.scale));
  }
  return {};
}

// One matrix [rows, k] with its scales, apart from scales per tensor.
int64_t matrix_bytes(WeightFormat format, int64_t rows, int64_t k) {
  switch (format) {
    case WeightFormat::kBf16:
    case WeightFormat::kFp16: return rows * k * 2;
    case WeightFormat::kFp8: return rows * k;
    case WeightFormat::kFp8Block: return rows * k + ceil_div(rows, 128) * ceil_div(k, 128) * 4;
    case WeightFormat::kNvfp4: return rows * (k / 2) + rows * ceil_div(k, 16);
    case WeightFormat::kMxfp4: return rows * (k / 2) + rows * ceil_div(k, 32);
  }
  return 0;
}

}  // namespace

Status validate(const FusedMoeSpec& spec) {
  MOETUNE_RETURN_IF_ERROR(check_sizes(spec));
  MOETUNE_RETURN_IF_ERROR(check_router(spec));
  const bool fits =
      spec.activations == ActivationFormat::kA16 ||
      (spec.activations == ActivationFormat::kFp8Block ? spec.weights == WeightFormat::kFp8Block
                                                       : spec.weights == WeightFormat::kFp8);
  if (!fits) {
    return invalid(fmt::format("{} activations with {} weights", to_string(spec.activations),
                               to_string(spec.weights)),
                   "they go with weights of the same name; others take a16");
  }
  if (spec.output != DataType::kBf16 && spec.output != DataType::kF32) {
    return invalid(fmt::format("output type {} is neither bf16 nor f32", to_string(spec.output)));
  }
  return {};
}

const char* to_string(WeightFormat format) { return name_of(kWeightFormats, format); }
const char* to_string(ActivationFormat format) { return name_of(kActivationFormats, format); }
const char* to_string(Activation activation) { return name_of(kActivations, activation); }
const char* to_string(Score score) { return name_of(kScores, score); }

std::optional<WeightFormat> parse_weight_format(std::string_view text) {
  return value_of(kWeightFormats, text);
}
std::optional<ActivationFormat> parse_activation_format(std::string_view text) {
  return value_of(kActivationFormats, text);
}
std::optional<Activation> parse_activation(std::string_view text) {
  return value_of(kActivations, text);
}
std::optional<Score> parse_score(std::string_view text) { return value_of(kScores, text); }

int64_t expert_weight_bytes(const FusedMoeSpec& spec) {
  const int w13_parts = spec.gated() ? 2 : 1;
  const bool scale_per_tensor =
      spec.weights == WeightFormat::kFp8 || spec.weights == WeightFormat::kNvfp4;
  const int64_t tensor_scales = scale_per_tensor ? (w13_parts + 1) * 4 : 0;
  return w13_parts * matrix_bytes(spec.weights, spec.intermediate, spec.hidden) +
         matrix_bytes(spec.weights, spec.hidden, spec.intermediate) + tensor_scales;
}

}  // namespace moetune

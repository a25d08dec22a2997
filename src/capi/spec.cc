#include "capi/spec.h"

#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "capi/boundary.h"
#include "moetune/checkpoint.h"
#include "moetune/fused_moe.h"

namespace moetune::capi {

namespace {

// The numbers of the interface are those of the C++ enumerations.
static_assert(static_cast<int>(WeightFormat::kFp16) == MOETUNE_FP16);
static_assert(static_cast<int>(WeightFormat::kFp8) == MOETUNE_FP8);
static_assert(static_cast<int>(WeightFormat::kFp8Block) == MOETUNE_FP8_BLOCK);
static_assert(static_cast<int>(WeightFormat::kNvfp4) == MOETUNE_NVFP4);
static_assert(static_cast<int>(WeightFormat::kMxfp4) == MOETUNE_MXFP4);
static_assert(static_cast<int>(ActivationFormat::kFp8Block) == MOETUNE_ACTIVATIONS_FP8_BLOCK);
static_assert(static_cast<int>(ActivationFormat::kFp8) == MOETUNE_ACTIVATIONS_FP8);
static_assert(static_cast<int>(Activation::kSwiGluClamped) == MOETUNE_SWIGLU_CLAMPED);
static_assert(static_cast<int>(Activation::kRelu2) == MOETUNE_RELU2);
static_assert(static_cast<int>(Activation::kGatePlusUp) == MOETUNE_GATE_PLUS_UP);
static_assert(static_cast<int>(Score::kSigmoid) == MOETUNE_SIGMOID);
static_assert(static_cast<int>(Score::kSqrtSoftplus) == MOETUNE_SQRT_SOFTPLUS);

template <typename Enum>
Result<Enum> to_enum(int32_t value, Enum last, const char* name) {
  if (value >= 0 && value <= static_cast<int32_t>(last)) return static_cast<Enum>(value);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} is {}, not 0 to {}", name, value, static_cast<int32_t>(last))};
}

moetune_model_options default_model_options() {
  moetune_model_options options = {};
  options.weights = -1;
  options.tp = options.ep = 1;
  return options;
}

Result<FusedMoeSpec> spec_of_model(const char* model, const moetune_model_options* given) {
  MOETUNE_RETURN_IF_ERROR(need(model, "model"));
  moetune_model_options options = default_model_options();
  if (given != nullptr) {
    MOETUNE_ASSIGN_OR_RETURN(options, read_struct(given, options, "moetune_model_options"));
  }
  LayerOptions layer;
  if (options.weights != -1) {
    MOETUNE_ASSIGN_OR_RETURN(const auto format,
                             to_enum(options.weights, WeightFormat::kMxfp4, "weights"));
    layer.weights = to_string(format);
  }
  MOETUNE_ASSIGN_OR_RETURN(const auto activations,
                           to_enum(options.activations, ActivationFormat::kFp8, "activations"));
  layer.activations = to_string(activations);
  MOETUNE_ASSIGN_OR_RETURN(layer.shared_experts, to_bool(options.shared_experts, "shared_experts"));
  layer.tp = options.tp;
  layer.ep = options.ep;
  layer.rank = options.rank;
  return layer_spec(model, layer);
}

Result<RouterSpec> to_router(const moetune_spec& from) {
  RouterSpec router;
  MOETUNE_ASSIGN_OR_RETURN(router.score, to_enum(from.score, Score::kSqrtSoftplus, "score"));
  MOETUNE_ASSIGN_OR_RETURN(router.selection_bias, to_bool(from.selection_bias, "selection_bias"));
  MOETUNE_ASSIGN_OR_RETURN(router.score_after_top_k,
                           to_bool(from.score_after_top_k, "score_after_top_k"));
  MOETUNE_ASSIGN_OR_RETURN(router.renormalise, to_bool(from.renormalise, "renormalise"));
  router.groups = from.groups;
  router.top_groups = from.top_groups;
  router.scale = from.scale;
  return router;
}

Status write_spec_of_model(const char* model, const moetune_model_options* options,
                           moetune_spec* spec) {
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec read, spec_of_model(model, options));
  return write_struct(spec, from_spec(read), "moetune_spec");
}

Status check_spec(const moetune_spec* spec) {
  const Result<FusedMoeSpec> read = to_spec(spec);
  return read.ok() ? Status() : Status(read.error());
}

Status write_first_expert(const moetune_spec* spec, int32_t rank, int32_t* out) {
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec read, to_spec(spec));
  MOETUNE_RETURN_IF_ERROR(need(out, "first_expert"));
  if (rank < 0 || rank >= read.tp * read.ep) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("rank is {}, not 0 to {}", rank, read.tp * read.ep - 1)};
  }
  *out = first_expert(read, rank);
  return {};
}

}  // namespace

Result<bool> to_bool(int32_t value, const char* name) {
  if (value == 0 || value == 1) return value == 1;
  return Error{ErrorCode::kInvalidArgument, fmt::format("{} is {}, neither 0 nor 1", name, value)};
}

Result<FusedMoeSpec> to_spec(const moetune_spec* given) {
  MOETUNE_ASSIGN_OR_RETURN(const moetune_spec from,
                           read_struct(given, from_spec({}), "moetune_spec"));
  if (from.reserved != 0) {
    return Error{ErrorCode::kUnsupported, fmt::format("moetune_spec.reserved is {}", from.reserved),
                 "initialise it with moetune_spec_init()"};
  }
  FusedMoeSpec spec;
  spec.hidden = from.hidden;
  spec.intermediate = from.intermediate;
  spec.experts = from.experts;
  spec.global_experts = from.global_experts;
  spec.top_k = from.top_k;
  spec.shared_experts = from.shared_experts;
  spec.tp = from.tp;
  spec.ep = from.ep;
  MOETUNE_ASSIGN_OR_RETURN(spec.weights, to_enum(from.weights, WeightFormat::kMxfp4, "weights"));
  MOETUNE_ASSIGN_OR_RETURN(spec.activations,
                           to_enum(from.activations, ActivationFormat::kFp8, "activations"));
  MOETUNE_ASSIGN_OR_RETURN(spec.activation,
                           to_enum(from.activation, Activation::kGatePlusUp, "activation"));
  MOETUNE_ASSIGN_OR_RETURN(const bool is_f32, to_bool(from.output, "output"));
  spec.output = is_f32 ? DataType::kF32 : DataType::kBf16;
  MOETUNE_ASSIGN_OR_RETURN(spec.bias, to_bool(from.bias, "bias"));
  MOETUNE_ASSIGN_OR_RETURN(spec.given_routing, to_bool(from.given_routing, "given_routing"));
  MOETUNE_ASSIGN_OR_RETURN(spec.router, to_router(from));
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  return spec;
}

moetune_spec from_spec(const FusedMoeSpec& spec) {
  moetune_spec to = {};
  to.hidden = spec.hidden;
  to.intermediate = spec.intermediate;
  to.experts = spec.experts;
  to.global_experts = spec.global_experts;
  to.top_k = spec.top_k;
  to.shared_experts = spec.shared_experts;
  to.weights = static_cast<int32_t>(spec.weights);
  to.activations = static_cast<int32_t>(spec.activations);
  to.output = spec.output == DataType::kF32 ? MOETUNE_OUTPUT_F32 : MOETUNE_OUTPUT_BF16;
  to.activation = static_cast<int32_t>(spec.activation);
  to.bias = spec.bias;
  to.given_routing = spec.given_routing;
  to.tp = spec.tp;
  to.ep = spec.ep;
  to.score = static_cast<int32_t>(spec.router.score);
  to.selection_bias = spec.router.selection_bias;
  to.groups = spec.router.groups;
  to.top_groups = spec.router.top_groups;
  to.score_after_top_k = spec.router.score_after_top_k;
  to.renormalise = spec.router.renormalise;
  to.scale = spec.router.scale;
  return to;
}

}  // namespace moetune::capi

using moetune::capi::guarded;

moetune_status moetune_spec_init(moetune_spec* spec, size_t struct_size) {
  return guarded([&] {
    return moetune::capi::write_struct(spec, struct_size, moetune::capi::from_spec({}),
                                       "moetune_spec");
  });
}

moetune_status moetune_model_options_init(moetune_model_options* options, size_t struct_size) {
  return guarded([&] {
    return moetune::capi::write_struct(options, struct_size, moetune::capi::default_model_options(),
                                       "moetune_model_options");
  });
}

moetune_status moetune_spec_from_model(const char* model, const moetune_model_options* options,
                                       moetune_spec* spec) {
  return guarded([&] { return moetune::capi::write_spec_of_model(model, options, spec); });
}

moetune_status moetune_spec_check(const moetune_spec* spec) {
  return guarded([&] { return moetune::capi::check_spec(spec); });
}

moetune_status moetune_spec_first_expert(const moetune_spec* spec, int32_t rank,
                                         int32_t* first_expert) {
  return guarded([&] { return moetune::capi::write_first_expert(spec, rank, first_expert); });
}

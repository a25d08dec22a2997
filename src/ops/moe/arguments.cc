#include "ops/moe/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>

#include "base/bf16.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "ops/moe/format.h"
#include "ops/moe/streams.h"

namespace moetune {

namespace {

constexpr int64_t kTokensOfOneThread = 64;  // Take less time than starting threads.

template <typename T>
Status view(const Tensors& arguments, std::string_view name, DataType type,
            const std::vector<int64_t>& shape, const T*& pointer) {
  const Tensor* tensor = find(arguments, name);
  if (tensor == nullptr || tensor->type != type || tensor->shape != shape) {
    const std::string found = tensor == nullptr ? "missing"
                                                : fmt::format("{} [{}]", to_string(tensor->type),
                                                              fmt::join(tensor->shape, ", "));
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: argument '{}' is {}, not {} [{}]", name, found,
                             to_string(type), fmt::join(shape, ", ")),
                 "arguments must fit the specification and agree on the number of tokens"};
  }
  if (tensor->data == nullptr && tensor->values() > 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: argument '{}' has no data", name)};
  }
  pointer = tensor->as<const T>();
  return {};
}

RandomTable<uint16_t> plus_and_minus_one() {
  RandomTable<uint16_t> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = float_to_bf16(i % 2 == 0 ? 1.0f : -1.0f);
  return table;
}

}  // namespace

Result<MoeArguments> view_arguments(const FusedMoeSpec& spec, const Tensors& arguments) {
  const Tensor* hidden = find(arguments, "hidden");
  MoeArguments args;
  args.tokens = hidden == nullptr || hidden->shape.empty() ? 0 : hidden->shape.front();
  MOETUNE_RETURN_IF_ERROR(
      view(arguments, "hidden", DataType::kBf16, {args.tokens, spec.hidden}, args.hidden));
  if (spec.given_routing) {
    const std::vector<int64_t> shape = {args.tokens, spec.top_k};
    MOETUNE_RETURN_IF_ERROR(view(arguments, "topk_ids", DataType::kI32, shape, args.topk_ids));
    MOETUNE_RETURN_IF_ERROR(
        view(arguments, "topk_weights", DataType::kF32, shape, args.topk_weights));
  } else {
    MOETUNE_RETURN_IF_ERROR(
        view(arguments, "logits", DataType::kF32, {args.tokens, spec.global_experts}, args.logits));
    if (spec.router.selection_bias) {
      MOETUNE_RETURN_IF_ERROR(
          view(arguments, "router_bias", DataType::kF32, {spec.global_experts}, args.router_bias));
    }
  }
  if (spec.ep > 1) {
    const int32_t* first = nullptr;
    MOETUNE_RETURN_IF_ERROR(view(arguments, "first_expert", DataType::kI32, {1}, first));
    args.first_expert = *first;
  }
  if (spec.activations == ActivationFormat::kFp8) {
    MOETUNE_RETURN_IF_ERROR(
        view(arguments, "activation_scales", DataType::kF32, {2}, args.activation_scales));
    MOETUNE_RETURN_IF_ERROR(check_activation_scales(std::span(args.activation_scales, 2)));
  }
  return args;
}

Result<MoeInputs> make_inputs(const FusedMoeSpec& spec, const Workload& workload, int64_t tokens,
                              DataKind kind, uint64_t seed, uint64_t sample, int64_t first_expert,
                              int threads) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  if (tokens < 0 || first_expert < 0 || first_expert + spec.experts > spec.global_experts) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("fused_moe: no inputs for {} tokens with experts {} to {} of {}", tokens,
                    first_expert, first_expert + spec.experts - 1, spec.global_experts)};
  }
  // Standard normal x; h of the order of 1, with more in its tail.
  constexpr std::array<float, 2> kActivationScales = {0x1p-5f, 0x1p-4f};
  MoeInputs inputs{.first_expert = static_cast<int32_t>(first_expert),
                   .activation_scales = kActivationScales};
  MOETUNE_ASSIGN_OR_RETURN(inputs.routing,
                           make_routing(spec, workload, tokens, seed, sample, threads));
  inputs.hidden.resize(static_cast<size_t>(tokens * spec.hidden));
  const uint64_t rows_seed = random_stream(seed, RandomUse::kHidden, sample).next();
  const RandomTable<uint16_t> table =
      kind == DataKind::kExact ? plus_and_minus_one() : normal_bf16_table(1);
  in_parts(tokens < kTokensOfOneThread ? 1 : threads, tokens, [&](int64_t first, int64_t last) {
    for (int64_t token = first; token < last; ++token) {
      Random own(rows_seed, static_cast<uint64_t>(token));
      fill_random(
          own, table,
          std::span(inputs.hidden)
              .subspan(static_cast<size_t>(token * spec.hidden), static_cast<size_t>(spec.hidden)));
    }
  });
  if (kind == DataKind::kExact) {
    Random weights = random_stream(seed, RandomUse::kRoutingWeights, sample);
    for (float& weight : inputs.routing.weights) weight = weights.below(2) == 0 ? 0.5f : 1.0f;
  }
  return inputs;
}

Tensors call_arguments(const FusedMoeSpec& spec, MoeInputs& inputs, void* output) {
  Routing& routing = inputs.routing;
  const int64_t tokens = routing.tokens;
  Tensors tensors = {{"hidden", DataType::kBf16, {tokens, spec.hidden}, inputs.hidden.data()}};
  if (spec.given_routing) {
    tensors.push_back({"topk_ids", DataType::kI32, {tokens, spec.top_k}, routing.ids.data()});
    tensors.push_back(
        {"topk_weights", DataType::kF32, {tokens, spec.top_k}, routing.weights.data()});
  } else {
    tensors.push_back(
        {"logits", DataType::kF32, {tokens, spec.global_experts}, routing.logits.data()});
    if (spec.router.selection_bias) {
      tensors.push_back(
          {"router_bias", DataType::kF32, {spec.global_experts}, routing.router_bias.data()});
    }
  }
  if (spec.activations == ActivationFormat::kFp8) {
    tensors.push_back({"activation_scales", DataType::kF32, {2}, inputs.activation_scales.data()});
  }
  if (spec.ep > 1) tensors.push_back({"first_expert", DataType::kI32, {1}, &inputs.first_expert});
  tensors.push_back({"output", spec.output, {tokens, spec.hidden}, output});
  return tensors;
}

}  // namespace moetune

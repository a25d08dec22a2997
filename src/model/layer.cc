// ModelSpec to one rank's FusedMoeSpec.
#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "model/model_spec.h"

namespace moetune {
namespace {

int64_t block_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNvfp4: return 16;
    case WeightFormat::kMxfp4: return 32;
    case WeightFormat::kFp8Block: return 128;
    case WeightFormat::kBf16:
    case WeightFormat::kFp16:
    case WeightFormat::kFp8: return 8;
  }
  return 8;
}

Status check_layout(const ModelSpec& model, WeightFormat weights, const ParallelLayout& layout) {
  if (layout.tp < 1 || layout.ep < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--tp {} --ep {}: both must be at least 1", layout.tp, layout.ep)};
  }
  const int64_t block = block_of(weights);
  const int64_t blocks = (model.intermediate + block - 1) / block;
  if (layout.tp > blocks) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--tp {} leaves ranks without work: an intermediate size of {} in {} "
                             "splits into {} at the most",
                             layout.tp, model.intermediate, to_string(weights), blocks),
                 fmt::format("use --tp {} or less; --ep splits the {} experts instead", blocks,
                             model.experts)};
  }
  if (layout.ep > model.experts) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--ep {} leaves ranks without work: a layer has {} experts", layout.ep,
                             model.experts),
                 fmt::format("use --ep {} or less", model.experts)};
  }
  const int64_t ranks = static_cast<int64_t>(layout.tp) * layout.ep;
  if (layout.rank < 0 || layout.rank >= ranks) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--rank {}: with --tp {} --ep {} there are ranks 0 to {}", layout.rank,
                             layout.tp, layout.ep, ranks - 1)};
  }
  return {};
}

/// Shared experts as experts of the routed ones' size.
Result<int> fused_shared_experts(const ModelSpec& model, const ParallelLayout& layout) {
  if (model.shared_intermediate == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: its layers have no shared experts", model.name),
                 "leave out --shared-experts"};
  }
  if (model.shared_gate) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: the output of its shared expert is scaled by a gate, which the "
                             "operator does not have",
                             model.name),
                 "leave out --shared-experts, and run it as a layer of its own"};
  }
  if (model.shared_intermediate % model.intermediate != 0) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: its shared experts have {} rows, which is no multiple of a routed "
                    "expert's {}",
                    model.name, model.shared_intermediate, model.intermediate),
        "leave out --shared-experts, and run them as a layer of their own"};
  }
  if (layout.ep > 1) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--shared-experts with --ep {}: every token visits a shared expert, "
                             "wherever its other experts are",
                             layout.ep),
                 "leave out --shared-experts, and run them as a layer of their own"};
  }
  return static_cast<int>(model.shared_intermediate / model.intermediate);
}

}  // namespace

int64_t first_of_share(int64_t total, int64_t block, int64_t parts, int64_t index) {
  const int64_t blocks = (total + block - 1) / block;
  return std::min(total, (index * (blocks / parts) + std::min(index, blocks % parts)) * block);
}

Result<RankShare> rank_share(const ModelSpec& model, WeightFormat weights,
                             const ParallelLayout& layout) {
  MOETUNE_RETURN_IF_ERROR(check_layout(model, weights, layout));
  const int64_t tp_rank = layout.rank % layout.tp;
  const int64_t ep_rank = layout.rank / layout.tp;
  const int64_t block = block_of(weights);
  const auto row = [&](int64_t i) {
    return first_of_share(model.intermediate, block, layout.tp, i);
  };
  const auto expert = [&](int64_t i) { return first_of_share(model.experts, 1, layout.ep, i); };
  return RankShare{.first_row = row(tp_rank),
                   .rows = row(tp_rank + 1) - row(tp_rank),
                   .first_expert = expert(ep_rank),
                   .experts = expert(ep_rank + 1) - expert(ep_rank)};
}

Result<FusedMoeSpec> layer_spec(const ModelSpec& model, std::optional<WeightFormat> weights,
                                const ParallelLayout& layout) {
  return layer_spec(model, LayerChoices{.weights = weights}, layout);
}

Result<FusedMoeSpec> layer_spec(const ModelSpec& model, const LayerChoices& choices,
                                const ParallelLayout& layout) {
  const std::optional<WeightFormat> weights = choices.weights ? choices.weights : model.weights;
  if (!weights) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: its experts are stored as {}, a format that moetune does not have",
                    model.name, model.weights_text),
        "--weights bf16 (or nvfp4, ...) tunes the same sizes in another format"};
  }
  MOETUNE_ASSIGN_OR_RETURN(const RankShare share, rank_share(model, *weights, layout));
  FusedMoeSpec spec;
  spec.hidden = model.hidden;
  spec.intermediate = share.rows;
  spec.experts = share.experts;
  spec.global_experts = model.experts;
  spec.top_k = model.top_k;
  spec.weights = *weights;
  spec.activations = choices.activations;
  spec.activation = model.activation;
  spec.router = model.router;
  spec.bias = model.bias;
  spec.tp = layout.tp;
  spec.ep = layout.ep;
  if (choices.shared_experts) {
    MOETUNE_ASSIGN_OR_RETURN(spec.shared_experts, fused_shared_experts(model, layout));
  }
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  return spec;
}

}  // namespace moetune

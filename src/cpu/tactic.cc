#include "cpu/tactic.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"

namespace moetune::cpu {
namespace {

Error bad(const char* parameter, int value, const std::string& allowed) {
  return {ErrorCode::kInvalidArgument, fmt::format("CPU tactic: {} = {}", parameter, value),
          fmt::format("Allowed: {}.", allowed)};
}

}  // namespace

std::string to_string(const StageTactic& tactic) {
  return fmt::format("{}/tile={}/panels={}/k={}/block={}/ahead={}",
                     tactic.feed == Feed::kStaged ? "staged" : "direct", tactic.token_tile,
                     tactic.panels_per_task, tactic.k_block, tactic.token_block,
                     tactic.prefetch_bytes);
}

Status validate(const StageTactic& tactic, const KernelTable& kernels, WeightFormat format) {
  constexpr int kGroup = kBlock * kScaleGroup;
  if (tactic.token_tile < 1 || tactic.token_tile > kernels.max_tile)
    return bad("token_tile", tactic.token_tile,
               fmt::format("1 to {} with {}", kernels.max_tile, kernels.name));
  if (tactic.panels_per_task < 1)
    return bad("panels_per_task", tactic.panels_per_task, "1 or more");
  if (tactic.k_block < 0 || tactic.k_block % kGroup != 0)
    return bad("k_block", tactic.k_block, fmt::format("0 or a multiple of {}", kGroup));
  if (tactic.token_block < tactic.token_tile)
    return bad("token_block", tactic.token_block, "token_tile or more");
  if (tactic.prefetch_bytes < 0) return bad("prefetch_bytes", tactic.prefetch_bytes, "0 or more");
  if (tactic.feed == Feed::kStaged && format == WeightFormat::kBf16 && kernels.stages_bf16 == 0)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("CPU tactic: {} kernels do not stage bf16", kernels.name),
                 "They multiply the packed weights as they are: use feed = direct."};
  return {};
}

Status validate(const LayerTactic& tactic, const KernelTable& kernels, WeightFormat format) {
  MOETUNE_RETURN_IF_ERROR(validate(tactic.gemm1, kernels, format));
  return validate(tactic.gemm2, kernels, format);
}

LayerTactic default_tactic(const FusedMoeSpec& spec, int64_t tokens, const KernelTable& kernels,
                           const Topology& topology, int threads) {
  (void)topology;
  (void)threads;
  const double rows =
      std::max(1.0, static_cast<double>(tokens * spec.top_k) / static_cast<double>(spec.experts));
  StageTactic stage;
  stage.token_tile = kernels.max_tile;
  const bool staging = spec.weights == WeightFormat::kNvfp4 || kernels.stages_bf16 != 0;
  if (rows > 8 && staging) {
    stage.feed = Feed::kStaged;
    stage.k_block = 256;
    stage.panels_per_task = 8;
  }
  return {stage, stage};
}

}  // namespace moetune::cpu

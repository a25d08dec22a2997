// What one pass of the layer keeps in the caller's workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/mma/gemm_tactic.h"
#include "ops/moe/format.h"

namespace moetune::cuda {

/// More tokens than this are worked off in passes, so that the workspace stays small next to the
/// weights.
inline constexpr int64_t kPassTokens = 8192;

/// Tiles that `pairs` (token, slot) pairs over `experts` experts can make.
int64_t most_tiles(int64_t pairs, int64_t experts, int token_tile);

/// Byte offsets, each a multiple of 256.
struct WorkspaceLayout {
  size_t ids = 0;
  size_t weights = 0;
  size_t row_of_pair = 0;
  size_t token_of_row = 0;
  size_t tile_counts = 0;
  size_t histograms = 0;
  size_t tiles[2] = {};
  size_t own_hidden = 0;     ///< Only where copies_hidden().
  size_t hidden_scales = 0;  ///< Only where rounds_activations().
  size_t activation_scales = 0;
  size_t activations = 0;  ///< [pairs, activation_columns] bf16
  size_t rows = 0;         ///< [pairs, groups * 16] f32: GEMM 2's, where a combine kernel follows.
  size_t bytes = 0;
};

WorkspaceLayout workspace_layout(const FusedMoeSpec& spec, const WeightLayout& layout,
                                 const GemmTactic& gemm1, const GemmTactic& gemm2, int64_t tokens);

/// Whether hidden states are copied first, to rows of whole 16 bytes or rounded, and how many
/// values such a row has.
inline bool copies_hidden(const FusedMoeSpec& spec) {
  return spec.hidden % 8 != 0 || rounds_activations(spec);
}
inline int64_t aligned_columns(const FusedMoeSpec& spec) { return (spec.hidden + 7) / 8 * 8; }

}  // namespace moetune::cuda

#include "cuda/mma/workspace.h"

#include <algorithm>

namespace moetune::cuda {

int64_t most_tiles(int64_t pairs, int64_t experts, int token_tile) {
  // Every expert with a pair has one tile that may not be full; the rest are.
  return std::min(pairs, std::min(experts, pairs) + pairs / token_tile);
}

WorkspaceLayout workspace_layout(const FusedMoeSpec& spec, const WeightLayout& layout,
                                 const GemmTactic& gemm1, const GemmTactic& gemm2, int64_t tokens) {
  const int64_t pass = std::min(tokens, kPassTokens), pairs = pass * spec.slots();
  WorkspaceLayout w;
  auto take = [&w](int64_t bytes) {
    const size_t at = w.bytes;
    w.bytes += (static_cast<size_t>(bytes) + 255) / 256 * 256;
    return at;
  };
  w.ids = take(pairs * 4);
  w.weights = take(pairs * 4);
  w.row_of_pair = take(pairs * 4);
  w.token_of_row = take(pairs * 4);
  w.tile_counts = take(8);
  w.histograms = take((pairs / kernels::kPairsPerGroupBlock + 1) * spec.held_experts() * 4);
  w.tiles[0] = take(most_tiles(pairs, spec.held_experts(), gemm1.token_tile) *
                    int64_t{sizeof(kernels::Tile)});
  w.tiles[1] = take(most_tiles(pairs, spec.held_experts(), gemm2.token_tile) *
                    int64_t{sizeof(kernels::Tile)});
  w.own_hidden = take(copies_hidden(spec) ? pass * aligned_columns(spec) * 2 : 0);
  if (rounds_activations(spec)) {
    w.hidden_scales = take(pass * activation_scale_count(aligned_columns(spec)) * 4);
    w.activation_scales = take(pairs * activation_scale_count(layout.activation_columns) * 4);
  }
  w.activations = take(pairs * layout.activation_columns * 2);
  if (gemm2.path != GemmPath::kCombine)
    w.rows = take(pairs * layout.w2.groups * kernels::kGroupRows * 4);
  return w;
}

}  // namespace moetune::cuda

// What runs untuned. Chosen by how many rows an expert has, since that decides what a launch is bound by: latency (a handful of
// tokens), the weights' bytes (up to some 16 rows an expert), the tensor cores beyond. docs/kernels-mma.md has the measurements.
#include <algorithm>

#include "cuda/mma/space.h"

namespace moetune::cuda {
namespace {

constexpr int64_t kCombineTokens = 3;       // up to here GEMM 2 and combine in one kernel win
constexpr double kStreamRows = 12;          // up to here the stream kernel wins (rows per expert)

struct Choice {
  const FusedMoeSpec& spec;
  WeightLayout layout;
  const ArchitectureLimits& limits;
  double rows;  ///< Per expert that gets its share.

  bool nvfp4() const { return layout.format == kernels::kNvfp4; }
};

// Fewer blocks, then less depth, until the planner has no objection.
GemmTactic fit(const Choice& c, GemmTactic t, const MatrixLayout& matrix) {
  for (;;) {
    KernelNeeds needs = estimate_needs(t, c.layout, matrix);
    const bool registers = needs.registers <= register_budget(c.limits, needs.threads, needs.min_blocks);
    needs.registers = 0;
    if (registers && plan_kernel(c.limits, needs).fits()) return t;
    if (t.blocks > 1) {
      --t.blocks;
    } else if (t.path == GemmPath::kTile && t.stages == 0) {
      t.stages = std::min(3, matrix.units);
      t.sets = 1;
    } else if (t.path == GemmPath::kTile && t.token_tile > 16 * t.warps_t) {
      t.token_tile /= 2;
    } else if (t.depth > 1) {
      t.depth = t.hold ? matrix.units : t.depth - 1;
      t.hold = false;
    } else {
      return t;
    }
  }
}

GemmTactic stream_gemm1(const Choice& c, int64_t tokens) {
  GemmTactic t;
  t.path = GemmPath::kStream;
  const bool wide = c.rows > 4;
  t.token_tile = wide ? 16 : 8;
  if (!wide && (!c.nvfp4() || tokens <= 4)) {  // many small blocks, all warps of one along k
    t.warps_m = 1;
    t.warps_k = 8;
    t.depth = c.nvfp4() ? 3 : 4;
    t.blocks = c.nvfp4() ? 3 : 2;
  } else {
    t.groups = c.nvfp4() ? 2 : 1;
    t.warps_m = 2;
    t.warps_k = 2;
    t.depth = wide ? 3 : 4;
    t.blocks = 3;
  }
  while (t.warps_k > 1 && c.layout.w13.units < t.warps_k * 2) t.warps_k /= 2, t.warps_m *= 2;
  t.depth = std::max(1, std::min(t.depth, c.layout.w13.units / t.warps_k));
  return fit(c, t, c.layout.w13);
}

GemmTactic stream_gemm2(const Choice& c) {
  GemmTactic t;
  t.path = GemmPath::kStream;
  const int units = c.layout.w2.units;
  t.token_tile = c.rows > 4 ? 16 : 8;
  t.hold = units <= 4;
  t.sets = c.nvfp4() ? 6 : 2;
  t.depth = t.hold ? units : 4;
  if (units <= 2) t.depth = 2 * units;
  t.groups = c.nvfp4() && t.token_tile == 8 ? 2 : 1;
  t.blocks = 4;
  return fit(c, t, c.layout.w2);
}

GemmTactic tile_gemm(const Choice& c, const MatrixLayout& matrix, bool second) {
  GemmTactic t;
  t.path = GemmPath::kTile;
  t.token_tile = c.rows <= 24 ? 32 : c.rows <= 160 ? 64 : 128;
  t.groups = t.token_tile == 32 ? 2 : 4;
  t.warps_t = t.token_tile == 128 ? 2 : 1;
  t.depth = t.token_tile == 32 ? 2 : 1;
  t.warps_m = t.token_tile == 128 ? 2 : 4;
  const bool resident = second && matrix.units <= 8;
  t.stages = resident ? 0 : std::min(4, matrix.units);
  t.sets = resident ? 4 : 1;
  return fit(c, t, matrix);
}

GemmTactic combine_gemm2(const Choice& c) {
  GemmTactic t;
  t.path = GemmPath::kCombine;
  t.warps_m = c.spec.top_k > 4 ? 8 : 4;
  t.depth = std::min(c.nvfp4() ? 4 : 2, c.layout.w2.units);
  t.blocks = 3;
  return fit(c, t, c.layout.w2);
}

}  // namespace

Candidate default_tactics(const FusedMoeSpec& spec, const ArchitectureLimits& limits, int64_t tokens) {
  const double share = static_cast<double>(spec.top_k) / static_cast<double>(spec.global_experts);
  const Choice c{spec, weight_layout(spec), limits, std::max(1.0, static_cast<double>(tokens) * share)};
  GemmTactic gemm1, gemm2;
  const char* scheme = "stream";
  if (c.rows > kStreamRows) {
    scheme = "tile";
    gemm1 = tile_gemm(c, c.layout.w13, false);
    gemm2 = tile_gemm(c, c.layout.w2, true);
  } else if (tokens <= kCombineTokens) {
    scheme = "stream-combine";
    gemm1 = stream_gemm1(c, tokens);
    gemm2 = combine_gemm2(c);
  } else {
    gemm1 = stream_gemm1(c, tokens);
    gemm2 = stream_gemm2(c);
  }
  Candidate candidate;
  candidate.scheme = scheme;
  candidate.stages = {{"gemm1", write_gemm_tactic(gemm1)}, {"gemm2", write_gemm_tactic(gemm2)}};
  return candidate;
}

}  // namespace moetune::cuda

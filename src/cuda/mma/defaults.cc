// What runs untuned. Chosen by how many rows an expert has, since that decides what a launch is
// bound by: latency (a handful of tokens), the weights' bytes (up to some 16 rows an expert), the
// tensor cores beyond. docs/kernels-mma.md has the measurements.
#include <algorithm>
#include <initializer_list>

#include "cuda/mma/space.h"
#include "cuda/mma/workspace.h"

namespace moetune::cuda {
namespace {

constexpr int64_t kCombineTokens = 3;  // up to here GEMM 2 and combine in one kernel win
constexpr double kStreamRows = 20;     // up to here the stream kernel wins (rows per expert)
constexpr int kLongUnits =
    16;  // of GEMM 2: from here on a warp has enough to do with one set of rows

struct Choice {
  const FusedMoeSpec& spec;
  WeightLayout layout;
  const ArchitectureLimits& limits;
  double rows;  ///< Per expert that gets its share.

  /// Whether a unit of weights takes few enough registers to have many in flight.
  bool fp4() const { return layout.format == kernels::kNvfp4 || layout.format == kernels::kMxfp4; }
};

// The largest of some values that is not above another, or the smallest.
int at_most(std::initializer_list<int> ascending, int value) {
  int best = *ascending.begin();
  for (int v : ascending) {
    if (v <= value) best = v;
  }
  return best;
}

// Sets of row groups, for blocks that have enough to do.
int sets_for(const GemmTactic& t, const MatrixLayout& matrix, int wanted) {
  return at_most({1, 2, 4, 6, 12, 24},
                 std::min(wanted, std::max(1, matrix.groups / (t.groups * t.warps_m))));
}

bool fits(const Choice& c, const GemmTactic& t, const MatrixLayout& matrix) {
  KernelNeeds needs = estimate_needs(t, c.layout, matrix);
  if (needs.registers > register_budget(c.limits, needs.threads, needs.min_blocks)) return false;
  needs.registers = 0;
  return plan_kernel(c.limits, needs).fits();
}

// Takes back what costs registers or shared memory, the least useful first, until the planner has
// no objection.
GemmTactic fit(const Choice& c, GemmTactic t, const MatrixLayout& matrix) {
  while (!fits(c, t, matrix)) {
    if (t.blocks > (t.path == GemmPath::kTile ? 1 : 2)) {
      --t.blocks;
    } else if (t.path == GemmPath::kTile && t.stages == 0) {
      t.stages = at_most({2, 3, 4}, matrix.units);
      t.sets = 1;
    } else if (t.path == GemmPath::kTile && t.token_tile > 32) {
      t.token_tile /= 2;
    } else if (t.depth > 1) {
      t.hold = false;
      t.depth = at_most({1, 2, 3, 4}, t.depth - 1);
    } else {
      break;
    }
  }
  return t;
}

GemmTactic stream_gemm1(const Choice& c, int64_t tokens) {
  GemmTactic t;
  t.path = GemmPath::kStream;
  const MatrixLayout& matrix = c.layout.w13;
  const bool wide = c.rows > 4;
  t.token_tile = wide ? 16 : 8;
  if (!wide && (!c.fp4() || tokens <= 4)) {  // many small blocks, all warps of one along k
    t.warps_m = 1;
    t.warps_k = 8;
    t.depth = c.fp4() ? 3 : 4;
    t.blocks = c.fp4() ? 3 : 2;
  } else {
    t.groups = c.fp4() ? 2 : 1;
    t.warps_m = 2;
    t.warps_k = 2;
    t.depth = wide ? 3 : 4;
    t.blocks = 3;
  }
  for (; t.warps_k > 1 && matrix.units < t.warps_k * 2; t.warps_k /= 2) t.warps_m *= 2;
  t.depth = at_most({1, 2, 3, 4}, std::min(t.depth, matrix.units / t.warps_k));
  return fit(c, t, matrix);
}

GemmTactic stream_gemm2(const Choice& c, int64_t tokens) {
  GemmTactic t;
  t.path = GemmPath::kStream;
  const MatrixLayout& matrix = c.layout.w2;
  t.token_tile = c.rows > 4 ? 16 : 8;
  if (matrix.units >= kLongUnits) {
    const bool latency = tokens <= kCombineTokens;
    t.groups = latency && c.fp4() ? 2 : 1;
    t.warps_m = latency ? 1 : 4;
    t.warps_k = latency ? 4 : 1;
    t.depth = 3;
    t.blocks = latency ? 2 : 3;
    return fit(c, t, matrix);
  }
  t.groups = c.fp4() && t.token_tile == 8 ? 2 : 1;
  t.sets = sets_for(t, matrix, c.fp4() ? 6 : 2);
  t.sets = at_most({1, 2, 4, 6, 12}, t.sets);
  t.hold = matrix.units <= 4;
  t.depth = t.hold ? matrix.units : 4;
  t.blocks = 4;
  return fit(c, t, matrix);
}

GemmTactic tile_gemm(const Choice& c, const MatrixLayout& matrix, bool second) {
  GemmTactic t;
  t.path = GemmPath::kTile;
  t.token_tile = c.rows <= 32 ? 32 : c.rows <= 96 ? 64 : 128;
  const bool widest = t.token_tile == 128, short_k = second && matrix.units <= 4;
  // Two terms of each weight, or sums of a unit beside those of all, take registers.
  const bool heavy =
      c.layout.format == kernels::kFp16 || (widest && kernels::has_block_scales(c.layout.format));
  t.groups = t.token_tile == 32 || (widest && !second) || heavy ? 2 : 4;
  t.warps_m = widest && short_k ? 2 : 4;
  t.warps_t = widest ? 2 : 1;
  t.depth = std::min(t.token_tile == 32 ? 2 : 1, matrix.units);
  t.stages = second && matrix.units <= 12 ? 0 : at_most({2, 3, 4}, matrix.units);
  t.sets = t.stages > 0 ? 1 : sets_for(t, matrix, widest && short_k ? 12 : 2);
  t.blocks = widest && second && !short_k ? 1 : 2;
  return fit(c, t, matrix);
}

GemmTactic combine_gemm2(const Choice& c) {
  GemmTactic t;
  t.path = GemmPath::kCombine;
  t.warps_m = c.spec.top_k > 4 ? 8 : 4;
  t.depth = at_most({1, 2, 3, 4}, std::min(c.fp4() ? 4 : 2, c.layout.w2.units));
  t.blocks = 3;
  return fit(c, t, c.layout.w2);
}

}  // namespace

Candidate default_tactics(const FusedMoeSpec& spec, const ArchitectureLimits& limits,
                          int64_t tokens) {
  const double share = static_cast<double>(spec.top_k) / static_cast<double>(spec.global_experts);
  const Choice c{spec, weight_layout(spec), limits,
                 std::max(1.0, static_cast<double>(std::min(tokens, kPassTokens)) * share)};
  GemmTactic gemm1, gemm2;
  const char* scheme = "stream";
  if (c.rows > kStreamRows) {
    scheme = "tile";
    gemm1 = tile_gemm(c, c.layout.w13, false);
    gemm2 = tile_gemm(c, c.layout.w2, true);
  } else if (tokens <= kCombineTokens && c.layout.w2.units < kLongUnits) {
    scheme = "stream-combine";
    gemm1 = stream_gemm1(c, tokens);
    gemm2 = combine_gemm2(c);
  } else {
    gemm1 = stream_gemm1(c, tokens);
    gemm2 = stream_gemm2(c, tokens);
  }
  Candidate candidate;
  candidate.scheme = scheme;
  candidate.stages = {{"gemm1", write_gemm_tactic(gemm1)}, {"gemm2", write_gemm_tactic(gemm2)}};
  return candidate;
}

}  // namespace moetune::cuda

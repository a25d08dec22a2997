#include "cuda/mma/gemm_tactic.h"

#include <fmt/format.h>

namespace moetune::cuda {
namespace {

// 32-bit registers of one lane for a unit of weights, and for its fragments while they are decoded.
int unit_registers(const WeightLayout& layout) {
  switch (layout.format) {
    case kernels::kBf16:
    case kernels::kFp16: return 16;
    case kernels::kFp8: return 8;
    case kernels::kFp8Block:
    case kernels::kFp8Rounded: return 10;
    case kernels::kNvfp4:
    case kernels::kMxfp4: return 5;
  }
  return 16;
}
int fragment_registers(const WeightLayout& layout) {
  switch (layout.format) {
    case kernels::kBf16: return 0;
    case kernels::kFp16: return 28;  // Two terms, and the f32 that they are made from.
    case kernels::kMxfp4: return 12;
    default: return 8;
  }
}
// Sums of one unit, apart from those that its scales bring them into: of so many row groups at a
// time, for so many times 8 tokens; and fragments of the unit's other half.
int unit_sum_registers(const WeightLayout& layout, int groups, int tokens8, int other_halves) {
  if (!kernels::has_block_scales(layout.format)) return 0;
  return groups * tokens8 * 4 + other_halves * 6;
}
// Where the scales of each token's activations lie.
int token_scale_registers(const WeightLayout& layout, int tokens8) {
  return layout.format == kernels::kFp8Rounded ? 2 * tokens8 + 6 : 0;
}

// Addresses, counters and what else every kernel has; from the compiler's reports.
constexpr int kStreamBase = 28, kSetsBase = 8, kTileBase = 20, kCombineBase = 32;

int stream_registers(const GemmTactic& t, const WeightLayout& layout, const MatrixLayout& matrix) {
  const int tokens8 = t.token_tile / 8, token_slots = t.hold ? matrix.units : t.depth;
  return t.groups * t.depth * unit_registers(layout) + token_slots * tokens8 * 8 +
         t.groups * tokens8 * 4 + fragment_registers(layout) +
         unit_sum_registers(layout, 1, tokens8, 0) + token_scale_registers(layout, tokens8) +
         kStreamBase + (t.sets > 1 ? kSetsBase : 0);
}

int tile_registers(const GemmTactic& t, const WeightLayout& layout) {
  const int tokens8 = t.token_tile / t.warps_t / 8, rows_to_load = t.token_tile * 8 / t.threads();
  return t.groups * t.depth * unit_registers(layout) + t.groups * tokens8 * 4 +
         t.groups * fragment_registers(layout) + unit_sum_registers(layout, t.groups, 2, t.groups) +
         token_scale_registers(layout, tokens8) + 8 + rows_to_load + kTileBase;
}

int combine_registers(const GemmTactic& t, const WeightLayout& layout) {
  return t.groups * t.depth * unit_registers(layout) + t.groups * 4 + 8 +
         fragment_registers(layout) + unit_sum_registers(layout, 1, 1, 0) + kCombineBase;
}

int static_shared_bytes(const GemmTactic& t) {
  if (t.path == GemmPath::kStream)
    return (t.warps_k - 1) * t.warps_m * t.groups * t.token_tile / 8 * 4 * 32 * 4;
  if (t.path == GemmPath::kCombine) return t.warps_m * t.groups * kernels::kGroupRows * 4;
  return 0;
}

}  // namespace

GemmTactic read_gemm_tactic(GemmPath path, const Tactic& tactic) {
  GemmTactic t;
  t.path = path;
  auto read = [&](const char* name, int& value) {
    value = static_cast<int>(tactic.number(name, value));
  };
  read("token_tile", t.token_tile);
  read("groups", t.groups);
  read("warps_m", t.warps_m);
  read("warps_k", t.warps_k);
  read("warps_t", t.warps_t);
  read("depth", t.depth);
  read("sets", t.sets);
  read("stages", t.stages);
  read("blocks", t.blocks);
  t.hold = tactic.number("hold", 0) != 0;
  return t;
}

Tactic write_gemm_tactic(const GemmTactic& t) {
  Tactic tactic;
  if (t.path != GemmPath::kCombine) tactic.set("token_tile", t.token_tile);
  tactic.set("groups", t.groups);
  tactic.set("warps_m", t.warps_m);
  if (t.path == GemmPath::kStream) tactic.set("warps_k", t.warps_k);
  if (t.path == GemmPath::kTile) tactic.set("warps_t", t.warps_t);
  tactic.set("depth", t.depth);
  if (t.path != GemmPath::kCombine) tactic.set("sets", t.sets);
  if (t.path == GemmPath::kTile) tactic.set("stages", t.stages);
  if (t.path == GemmPath::kStream) tactic.set("hold", t.hold ? 1 : 0);
  tactic.set("blocks", t.blocks);
  return tactic;
}

int dynamic_shared_bytes(const GemmTactic& t, const MatrixLayout& matrix) {
  if (t.path != GemmPath::kTile) return 0;
  return (t.stages == 0 ? matrix.units : t.stages) * t.token_tile * kernels::kUnitK * 2;
}

KernelNeeds estimate_needs(const GemmTactic& t, const WeightLayout& layout,
                           const MatrixLayout& matrix) {
  KernelNeeds needs;
  needs.threads = t.threads();
  needs.registers = t.path == GemmPath::kStream ? stream_registers(t, layout, matrix)
                    : t.path == GemmPath::kTile ? tile_registers(t, layout)
                                                : combine_registers(t, layout);
  needs.shared_bytes = static_shared_bytes(t) + dynamic_shared_bytes(t, matrix);
  needs.min_blocks = t.blocks;
  return needs;
}

std::string kernel_expression(const GemmTactic& t, const WeightLayout& layout,
                              const GemmRole& role) {
  const int format = layout.format;
  switch (t.path) {
    case GemmPath::kStream:
      return fmt::format(
          "moetune::kernels::gemm_stream<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>", format,
          role.epilogue, layout.bias, role.k % kernels::kUnitK != 0, t.token_tile, t.groups,
          t.warps_m, t.warps_k, t.depth, t.sets > 1 || t.hold, t.hold ? role.matrix->units : 0,
          t.blocks);
    case GemmPath::kTile:
      return fmt::format("moetune::kernels::gemm_tile<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>",
                         format, role.epilogue, layout.bias, t.token_tile, t.groups, t.warps_m,
                         t.warps_t, t.depth, t.stages == 0 ? 2 : t.stages, t.stages == 0, t.blocks);
    case GemmPath::kCombine: break;
  }
  return fmt::format("moetune::kernels::gemm_combine<{}, {}, {}, {}, {}, {}, {}>", format,
                     layout.bias, role.f32_output, t.groups, t.warps_m, t.depth, t.blocks);
}

const char* kernel_source(GemmPath path) {
  switch (path) {
    case GemmPath::kStream: return "cuda/kernels/gemm_stream.cuh";
    case GemmPath::kTile: return "cuda/kernels/gemm_tile.cuh";
    case GemmPath::kCombine: break;
  }
  return "cuda/kernels/gemm_combine.cuh";
}

}  // namespace moetune::cuda

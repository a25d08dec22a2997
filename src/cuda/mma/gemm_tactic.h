// The choices of one GEMM of the mma family: what a tactic's parameters mean, what they cost, and
// which kernel they name.
#pragma once

#include <string>

#include "cuda/mma/layout.h"
#include "cuda/planner.h"
#include "moetune/tactic.h"

namespace moetune::cuda {

/// Which kernel: src/cuda/kernels/gemm_stream.cuh, gemm_tile.cuh or gemm_combine.cuh.
enum class GemmPath : uint8_t { kStream, kTile, kCombine };

/// Names as in Space::parameters(). Parameters that a path does not have keep their value here.
struct GemmTactic {
  GemmPath path = GemmPath::kStream;
  int token_tile = 8;  ///< Tokens of one expert that a block works on.
  int groups = 1;      ///< Groups of 16 weight rows that a warp multiplies at a time.
  int warps_m = 4;     ///< Warps along the weight rows.
  int warps_k = 1;     ///< Stream: warps along k.
  int warps_t = 1;     ///< Tile: warps along the tokens.
  int depth = 4;       ///< Units of weights that a warp has in flight, per group.
  int sets = 1;        ///< Sets of row groups that a warp works through in one go.
  int stages = 4;      ///< Tile: chunks of tokens' k in shared memory; 0: all of k.
  bool hold = false;   ///< Stream: activations of all of k stay in registers.
  int blocks = 2;      ///< Per multiprocessor: the compiler keeps registers low enough for that.

  int threads() const { return 32 * warps_m * warps_k * warps_t; }
  int groups_per_block() const { return groups * warps_m * sets; }
};

GemmTactic read_gemm_tactic(GemmPath path, const Tactic& tactic);
/// The inverse: every parameter of the path's space.
Tactic write_gemm_tactic(const GemmTactic& tactic);

/// Dynamic shared memory of one block.
int dynamic_shared_bytes(const GemmTactic& tactic, const MatrixLayout& matrix);
/// What the kernel will ask for. Registers are an estimate: what the compiler needs lest it spills.
KernelNeeds estimate_needs(const GemmTactic& tactic, const WeightLayout& layout,
                           const MatrixLayout& matrix);

/// The matrix a kernel multiplies with, as its template sees it.
struct GemmRole {
  const MatrixLayout* matrix = nullptr;
  int epilogue = kernels::kIdentity;
  int k = 0;                ///< Values of an input row.
  bool f32_output = false;  ///< GemmPath::kCombine only.
};

/// "moetune::kernels::gemm_stream<...>"
std::string kernel_expression(const GemmTactic& tactic, const WeightLayout& layout,
                              const GemmRole& role);
/// "cuda/kernels/gemm_stream.cuh"
const char* kernel_source(GemmPath path);

}  // namespace moetune::cuda

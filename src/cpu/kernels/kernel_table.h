// What a CPU micro-kernel set offers, and the packed weight stream it reads: the whole contract
// between the kernels, which are compiled once per instruction set, and everything else.
//
// Plain declarations only. Whatever is inline here would be compiled with AVX flags in one
// translation unit and without in the next, and the linker keeps either copy: a program could then
// meet AVX instructions on a processor that has none. For the same reason the kernel files include
// this header and the compiler's intrinsics, and nothing else.
//
// The stream of one panel, kPanelRows weight rows, kBlock values of k at a time (k and rows are
// padded with zeros):
//
//   bf16    per pair of k (k, k+1): 32 rows x {w[k], w[k+1]}, so 128 bytes. A 32-bit lane is what a
//   bf16 dot product
//           takes, and one shift or one mask makes f32 of either half.
//   nvfp4   groups of up to kScaleGroup blocks: first their scales, 2 halves of 16 rows x {4 blocks
//   x 16 e4m3 bytes}
//           (128 bytes, whole also where a group is short); then per 8 values of k and half 64
//           bytes of codes. Within these 64 bytes each 16 bytes hold 4 rows: 16-bit lanes 0..3
//           their even k, lanes 4..7 their odd k, and the nibbles of a lane, lowest first, are k,
//           k+2, k+4, k+6. Unpacking the looked-up bytes of the low (high) nibbles with the AVX2
//           byte-interleave gives rows in order; AVX-512 needs one permutation per 64 bytes.
//
// A weight is read once, front to back, scales included, from one address stream.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace moetune::cpu {

constexpr int kPanelRows =
    32;  // GEMM 1 with a gate: 16 gate rows, then the 16 up rows that belong to them.
constexpr int kHalfRows = 16;
constexpr int kBlock = 16;      // Values of k that share an nvfp4 scale; also the padding of k.
constexpr int kScaleGroup = 4;  // Blocks whose scales are stored together.
constexpr int kBf16BlockBytes = 1024;
constexpr int kNvfp4BlockBytes = 256;
constexpr int kScaleGroupBytes = 128;
constexpr int kMaxTokenTile =
    12;  // Largest of any instruction set; KernelTable::max_tile says one set's own.

enum class Epilogue : int { kSwiGlu, kSwiGluClamped, kRelu2, kGatePlusUp };

// One tile: c[tokens][kPanelRows] = (or +=) x · wᵀ over `k_blocks` blocks of k; with staged weights
// only the columns of one group of rows.
struct TileArgs {
  const uint8_t* weights;  // The panel's stream from the first block on, or what was staged.
  const uint32_t* x;       // Packed by `pack_x`: [k / values_per_item][tokens].
  float* c;
  int tokens;  // 1 .. max_tile.
  int k_blocks;
  int accumulate;      // 0: c is overwritten.
  int prefetch_bytes;  // How far ahead of its reads the stream is prefetched.
  int group;           // For staged weights: which rows they are of.
};

// Converts one group of a panel's rows.
struct StageArgs {
  const uint8_t* weights;  // From a block that starts a scale group.
  uint32_t* out;           // kPanelRows / stage_groups · kBlock / values_per_item items per block.
  int k_blocks;
  int prefetch_bytes;
  int group;
};

struct CombineArgs {
  const float* y;  // [slots][stride]
  int64_t stride;
  const int32_t* ids;
  const float* weights;
  int slots;
  int64_t columns;
};

struct KernelTable {
  const char* name;
  int max_tile;         // Tokens in the largest tile.
  int stage_groups;     // Equal groups of a panel's rows that are staged one at a time: 1 or 2.
  int values_per_item;  // Values of k in one 32-bit item of a packed x: 1 (f32) or 2 (bf16 pair).
  int stages_bf16;      // 0: staging bf16 would copy the stream as it is; `stage_bf16` is null.

  // Packs `tokens` rows of bf16 from rows[i] + first_k, `values` of them followed by zeros up to
  // whole blocks, as [k / values_per_item][tokens]. Writes up to 3 items past the end.
  void (*pack_x)(const uint16_t* const* rows, int tokens, int64_t first_k, int64_t values,
                 uint32_t* out);

  void (*tile_bf16)(const TileArgs* args);
  void (*tile_nvfp4)(const TileArgs* args);
  void (*tile_staged)(const TileArgs* args);
  void (*stage_bf16)(const StageArgs* args);
  void (*stage_nvfp4)(const StageArgs* args);

  // out[t][0..15] (relu2: 0..31) = bf16(activation(c[t] · scales)); out rows are `stride` values
  // apart.
  void (*activate)(Epilogue kind, const float* c, int tokens, float gate_scale, float up_scale,
                   uint16_t* out, int64_t stride);
  // y[rows[t]·stride + 0..31] = c[t][0..31] · scale
  void (*store)(const float* c, int tokens, float scale, const int32_t* rows, float* y,
                int64_t stride);
  // out[0..columns) = sum over slots of weights[slot] · y[slot][0..columns), in the order of slots,
  // but those with an id of -1; as bf16 or f32.
  void (*combine_bf16)(const CombineArgs* args, uint16_t* out);
  void (*combine_f32)(const CombineArgs* args, float* out);

  // Ceilings. `read` touches every byte of a range (whole cache lines) and returns something that
  // depends on all of it; `multiply` does `iterations` rounds of the set's best multiply-accumulate
  // on registers and returns the floating-point operations of one round, with `sink` kept alive.
  uint64_t (*read)(const uint8_t* data, size_t bytes);
  double (*multiply)(int64_t iterations, float* sink);
};

// One per kernel file. The AVX ones exist on x86-64 builds only.
extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;

}  // namespace moetune::cpu

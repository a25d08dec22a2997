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
//   bf16 dot product takes, and one shift or one mask makes f32 of either half.
//   fp16    per k: 32 rows x w[k], so 64 bytes: what the conversion from f16 reads.
//   fp8     groups of up to 8 blocks, 128 k: first an f32 scale for each half of 16 rows (in 64
//   bytes, for alignment); then per pair of k 64 bytes, 32 rows x {w[k], w[k+1]}. Both fp8 formats:
//   scales are those of the blocks of 128 x 128, or 1.
//   nvfp4   groups of up to 4 blocks: first their scales, 2 halves of 16 rows x {4 scales along k x
//   16 bytes of e4m3} (128 bytes, whole also where a group is short); then per 8 values of k 128
//   bytes of codes, 32 rows x a 32-bit word. The nibbles of a word, lowest first, are k, k+2, k+4,
//   k+6, k+1, k+3, k+5, k+7: its 16-bit halves shifted alike hold (k, k+1), then (k+2, k+3) ...
//   mxfp4   the same with groups of up to 8 blocks: a scale is ue8m0, and of two blocks.
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
constexpr int kStepBlocks = 8;  // k is cut at multiples of so many blocks, which are whole groups.
constexpr int kFp4Scales = 4;   // Scales along k that are stored together in the fp4 formats.

struct StreamFormat {
  int group_blocks;  // Blocks of k behind a header; divides kStepBlocks.
  int header_bytes;  // Of scales.
  int block_bytes;
};
constexpr StreamFormat kHalvesStream{1, 0, 1024};  // bf16 and fp16
constexpr StreamFormat kFp8Stream{8, 64, 512};
constexpr StreamFormat kNvfp4Stream{4, 128, 256};
constexpr StreamFormat kMxfp4Stream{8, 128, 256};

constexpr int kMaxTokenTile =
    12;  // Largest of any instruction set; KernelTable::max_tile says one set's own.

enum class Epilogue : int { kSwiGlu, kSwiGluClamped, kRelu2, kGatePlusUp };

// One tile: c[tokens][kPanelRows] = (or +=) x · wᵀ over `k_blocks` blocks of k; with staged weights
// only the columns of one group of rows.
struct TileArgs {
  const uint8_t* weights;  // The panel's stream from the first block on, or what was staged.
  const uint32_t* x;       // Packed by `pack_x` of the weights' format.
  float* c;
  int tokens;  // 1 .. max_tile.
  int k_blocks;
  int accumulate;      // 0: c is overwritten.
  int prefetch_bytes;  // How far ahead of its reads the stream is prefetched.
  int group;           // For staged weights: which rows they are of.
  // fp8 kernels: scales of x, [ceil(k_blocks / 8)][tokens]; null: x is what it is.
  const float* x_scales;
};

// Converts one group of a panel's rows.
struct StageArgs {
  const uint8_t* weights;  // From a block that starts a group.
  uint32_t* out;           // staged_block_items per block.
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

// What the tiles multiply, where activations are bf16: f32; pairs of bf16; or pairs of 16-bit
// integers, for which blocks of activations become fixed-point numbers (fixed_point.h).
enum class Arithmetic : int { kF32, kBf16Pairs, kInt16Pairs };

// The matrix kernels of one weight format.
struct FormatKernels {
  Arithmetic arithmetic;
  int x_block_items;       // 32-bit items of packed x that one block of k of one token takes.
  int staged_block_items;  // What one block of one group of rows takes when staged; a group of
                           // blocks that is short may take as much as a whole one.

  // Packs `tokens` rows of bf16 from rows[i] + first_k, `values` of them followed by zeros up to
  // whole blocks, the items of all tokens side by side: [k_blocks][x_block_items][tokens]. Writes
  // up to 3 items past the end.
  void (*pack_x)(const uint16_t* const* rows, int tokens, int64_t first_k, int64_t values,
                 uint32_t* out);
  void (*tile)(const TileArgs* args);

  // Null where staging would copy the stream as it is.
  void (*stage)(const StageArgs* args);
  void (*tile_staged)(const TileArgs* args);

  // Ceiling: `iterations` rounds of this arithmetic's multiply-accumulate on registers. Returns the
  // operations of one round, with `sink` kept alive.
  double (*multiply)(int64_t iterations, float* sink);
};

struct KernelTable {
  const char* name;
  int max_tile;      // Tokens in the largest tile.
  int stage_groups;  // Equal groups of a panel's rows that are staged one at a time: 1 or 2.
  const FormatKernels* bf16;
  const FormatKernels* fp16;
  const FormatKernels* fp8;
  const FormatKernels* nvfp4;
  const FormatKernels* mxfp4;

  // out[t][0..15] (relu2: 0..31) = bf16(activation(c[t] · scales + bias)); out rows are `stride`
  // values apart. `bias`: of the panel's rows, or null.
  void (*activate)(Epilogue kind, const float* c, int tokens, float gate_scale, float up_scale,
                   const float* bias, uint16_t* out, int64_t stride);
  // y[rows[t]·stride + 0..31] = c[t][0..31] · scale + bias
  void (*store)(const float* c, int tokens, float scale, const float* bias, const int32_t* rows,
                float* y, int64_t stride);
  // Rounds bf16 values to e4m3 under a scale of each 128: value = code · scale. That is `given`, or
  // where it is 0 amax / 448, or 1. Codes are bf16, which holds them exactly; `codes` may be `in`.
  void (*round_row)(const uint16_t* in, uint16_t* codes, float* scales, float given,
                    int64_t columns);
  // out[0..columns) = sum over slots of weights[slot] · y[slot][0..columns), in the order of slots,
  // but those with an id of -1; as bf16 or f32.
  void (*combine_bf16)(const CombineArgs* args, uint16_t* out);
  void (*combine_f32)(const CombineArgs* args, float* out);

  // Ceiling: touches every byte of a range (whole cache lines) and returns something that depends
  // on all of it.
  uint64_t (*read)(const uint8_t* data, size_t bytes);
};

// One per kernel file. The AVX ones exist on x86-64 builds only.
extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
// What kAvx512Bf16Kernels has for fp16: an f16 is no bf16, so its dot products do not help.
extern const FormatKernels kAvx512Fp16Kernels;

}  // namespace moetune::cpu

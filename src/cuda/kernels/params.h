// What host and device agree on: the packed weight layout and the parameters of every kernel of the
// `mma` family. Plain C++ without any header, because NVRTC has none.
#pragma once

#if defined(__CUDACC__)
#define MOETUNE_BOTH __host__ __device__
#else
#define MOETUNE_BOTH
#endif

namespace moetune::kernels {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// ---- Packed weights ----
// One matrix [rows, k] of one expert becomes [groups][units][unit bytes]: a group is 16 rows, a
// unit 64 values of k, and a unit's bytes lie in the order in which the 32 lanes of a warp feed
// them to mma.m16n8k16, 16 bytes a lane. Since a dot product does not care for the order of k, lane
// j of a quad owns the 16 consecutive values [16j, 16j + 16) of a unit: the activations of a lane
// are then two 16-byte loads, and an nvfp4 scale belongs to exactly one lane and row.
//
// In step s (0..3) of a unit, lane 4g + j holds the values k = 16j + 4s + {0, 1 | 2, 3} of the
// group's rows g and g + 8.
//   bf16, fp16  [step][lane][row g: k0 k1 | row g+8: k0 k1 | row g: k2 k3 | row g+8: k2 k3]
//   fp8         [half][lane][row g: 2 words | row g+8: 2 words] of 4 codes each, a word a step
//   fp8-block   the same, then the scales (f32) of rows 0..7 and of rows 8..15, and 8 bytes unused
//   nvfp4       [lane][row g: 2 words | row g+8: 2 words] of 8 codes each,
//               then [lane][row g | row g+8] scales
//   mxfp4       codes as nvfp4, then [g][j / 2][row g | row g+8] scales: a block of 32 is two
//   lanes'
// A group's rows g (0..7) and g + 8 are, for a gated w13, row g of 8 of gate and of the 8 of up
// that go with them: one lane has what an activation needs. For other matrices they are rows 2g and
// 2g + 1 of 16 consecutive ones: one lane stores neighbours.

constexpr int kGroupRows = 16;
constexpr int kUnitK = 64;

// kFp8Rounded: kFp8Block with activations that have scales, too.
enum Format : int {
  kBf16 = 0,
  kNvfp4 = 1,
  kFp16 = 2,
  kFp8 = 3,
  kFp8Block = 4,
  kMxfp4 = 5,
  kFp8Rounded = 6
};

// Whether a unit's sums enter the real ones under scales of its own.
MOETUNE_BOTH constexpr bool has_block_scales(int format) {
  return format == kFp8Block || format == kFp8Rounded;
}

MOETUNE_BOTH constexpr int unit_bytes(int format) {
  return format == kNvfp4           ? 576
         : format == kMxfp4         ? 544
         : format == kFp8           ? 1024
         : has_block_scales(format) ? 1040
                                    : 2048;
}
constexpr int kFp4CodeBytes = 512;
constexpr int kFp8CodeBytes = 1024;
constexpr int kFp8BlockSize = 128;  // rows and values of k that share a scale

// Epilogue of GEMM 1; kIdentity is GEMM 2.
enum Epilogue : int { kIdentity = 0, kSwiGlu = 1, kSwiGluClamped = 2, kRelu2 = 3, kGatePlusUp = 4 };

MOETUNE_BOTH constexpr bool is_gated(int epilogue) {
  return epilogue != kIdentity && epilogue != kRelu2;
}

// A word of 4 fp8 codes holds the bits of values 0 and 1 where bf16 has them: sign at 15, exponent
// and mantissa at 10..4 of each half. Values 2 and 3 have what is left over: rotated by 4 their
// exponents and (swapped) signs are in place, rotated by 4 the other way their mantissas. Read as
// bf16, subnormals included, a code is its value * 2^-120; kernels multiply it by 2^120.
// 7 instructions for 4 values.
MOETUNE_BOTH constexpr int fp8_code_bit(int value, int bit) {
  const int half = (value & 1) * 16;
  return value < 2  ? half + (bit == 7 ? 15 : 4 + bit)
         : bit == 7 ? 19 - half
         : bit < 3  ? half + bit
                    : half + 8 + bit;
}
constexpr u32 kFp8Factor = 0x7B807B80u;  // 2^120 in both halves

// An nvfp4 or mxfp4 word holds 8 codes so that a rotation and a mask bring two of them into bf16's
// bits: sign to 15, exponent to 8..7, mantissa to 6 of each half. Pair r (values 2r and 2r + 1) is
// rotated right by kRotation[r]; no four rotations of that pattern cover a word without overlap, so
// the mantissas of pair 3 come by a rotation of their own. 9 instructions for 8 values.
constexpr int kRotation0 = 0, kRotation1 = 4, kRotation2 = 10, kRotation3 = 6,
              kRotation3Mantissa = 14;

MOETUNE_BOTH constexpr int code_rotation(int pair, int bit_of_half) {
  return pair == 0          ? kRotation0
         : pair == 1        ? kRotation1
         : pair == 2        ? kRotation2
         : bit_of_half == 6 ? kRotation3Mantissa
                            : kRotation3;
}
// The word's bit that holds bit `bit` (0..3, 3 is the sign) of value `value` (0..7).
MOETUNE_BOTH constexpr int code_bit(int value, int bit) {
  const int of_half = bit == 3 ? 15 : 6 + bit;
  return ((value & 1) * 16 + of_half + code_rotation(value >> 1, of_half)) & 31;
}

// Scales are kept as 5 exponent and 3 mantissa bits with bias 22, which covers e4m3 subnormals
// included: `byte << 4` is the bf16 of scale * 2^-105, and of 0 for 0; kernels multiply it by
// 2^127. A code's bits read as bf16 are its value * 2^-126. The product of both, value * scale *
// 2^-104, is a normal number and exact; what is left goes with the global scale.
constexpr u32 kNvfp4ScaleFactor = 0x7F007F00u;                         // 2^127 in both halves
constexpr float kNvfp4Epilogue = 20282409603651670423947251286016.0f;  // 2^104

// A ue8m0 scale is kept as its exponent plus 100, which is the bf16 of scale * 2^100. Times a
// code's bits that is value * scale * 2^-26, exact for scales from 2^-99 on. Larger ones than 2^27
// do not fit, and are refused.
constexpr int kMxfp4Bias = 100, kMxfp4LargestScale = 254 - kMxfp4Bias;
constexpr float kMxfp4Epilogue = 67108864.0f;  // 2^26

// ---- Parameters ----

enum Score : int { kSoftmax = 0, kSigmoid = 1, kSqrtSoftplus = 2 };

struct RouteParams {
  const float* logits;  // [tokens, experts]
  const float* bias;    // [experts], selection only; null: none
  int* ids;             // [tokens, top_k + shared] out
  float* weights;       // [tokens, top_k + shared] out
  int tokens, experts, top_k;
  int shared;  // experts that every token visits: ids from `experts` on, weight 1
  int score, score_after_top_k, renormalise;
  int groups, top_groups;
  float scale;
};

// Given routing with the shared experts after it.
struct AppendParams {
  const int* ids;  // [tokens, top_k]
  const float* weights;
  int* all_ids;  // [tokens, top_k + shared] out
  float* all_weights;
  int tokens, experts, top_k, shared;
};

// Up to tile_tokens sorted rows of one expert.
struct alignas(16) Tile {
  int expert, first_row, rows, unused;
};

// top_k from here on: slots of a token, the shared experts' among them.
struct GroupParams {
  const int* ids;  // [tokens, top_k]; outside of [first expert, first expert + experts): skipped
  const int* first_expert;  // null: 0
  int* row_of_pair;         // [tokens * top_k] out: sorted row of a (token, slot), -1 where skipped
  int* token_of_row;        // [tokens * top_k] out
  Tile* tiles[2];           // out, in the order of experts; for GEMM 1 and GEMM 2
  int* tile_counts;         // [2] out
  int* histograms;          // [blocks, experts], where several blocks share the work
  int tile_tokens[2];
  int tokens, top_k, experts;
};

constexpr int kGroupThreads = 1024;        // of one block that groups; at least one an expert
constexpr int kPairsPerGroupBlock = 4096;  // where several do

struct GemmParams {
  const u8* weights;    // packed, [experts][groups][units][unit bytes]
  const float* scales;  // nvfp4, fp8: [experts][2], factors of a group's rows 0..7 and 8..15
  const float* bias;  // [experts][groups][16]: rows in order, or 8 of gate and 8 of up; null where
                      // there is none
  const u16* input;   // bf16 [rows, input_stride]
  // kFp8Rounded: [rows][ceil(k / 128)], scales of the input, which are codes
  const float* input_scales;
  const int* row_index;  // input row of a sorted row; null: the same
  const Tile* tiles;
  const int* tile_count;
  void* output;  // [sorted rows, output_stride]: bf16 of GEMM 1, f32 of GEMM 2
  i64 expert_bytes;
  int input_stride, output_stride;
  int k, units, groups;  // k: values of a row; units = ceil(k / 64)
  int sets;              // sets of row groups that a warp works through
};

struct CombineParams {
  const float* rows;     // [sorted rows, row_stride]
  const float* weights;  // [tokens, top_k]
  const int* row_of_pair;
  void* output;  // [tokens, columns], bf16 or f32
  int row_stride, columns, tokens, top_k;
};

// GEMM 2 and combine in one, for few tokens.
struct GemmCombineParams {
  GemmParams gemm;  // tiles, tile_count, row_index and sets are not used; output: [tokens, columns]
  const int* ids;
  const float* weights;
  const int* row_of_pair;
  const int* first_expert;  // null: 0
  int columns, tokens, top_k, experts;
};

struct PackParams {
  const void* source;         // [rows, k] values of 16 or 8 bits, or codes [rows, k / 2]
  const void* source_scales;  // as the format has them
  u8* packed;
  int* not_a_number;  // set to 1 where an fp8 code is NaN, which a packed code cannot be
  int rows, k, groups, units;
  int gated;  // rows are gate then up, each rows / 2
};

// Rows of bf16 rounded to e4m3 under a scale of each 128 values: the codes, as bf16, and the
// scales.
struct RoundParams {
  const u16* source;  // [rows, source_stride]
  u16* target;        // [rows, target_stride], zeros past `columns`; may be the source
  float* scales;      // [rows][ceil(target_stride / 128)]
  int rows, columns, source_stride, target_stride;
};

// Rows whose bytes do not come in 16s, copied to where they do; zeros past the end.
struct AlignParams {
  const u16* source;  // bf16 [rows, columns]
  u16* target;        // [rows, stride]
  int rows, columns, stride;
};

}  // namespace moetune::kernels

// The small number formats of weights, as exact conversions: e2m1 (fp4), e4m3fn (fp8), ue8m0
// (power-of-two scales), and the block formats made of them: nvfp4, mxfp4, fp8 by blocks.
// Definitions: OCP Microscaling Formats 1.0 for the elements and mxfp4; nvfp4 as NVIDIA's ModelOpt
// and cuBLAS define it; fp8 by blocks as in DeepSeek-V3's checkpoints.
//
// Nothing here is meant to be fast: kernels decode in their own ways, and are checked against this.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "moetune/result.h"

namespace moetune {

// ---- Elements ----

/// The values of the 16 e2m1 codes: bit 3 is the sign.
inline constexpr std::array<float, 16> kE2M1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};

/// The nearest e2m1 code, ties to the even code, saturating at 6. NaN becomes 6 with its sign: fp4
/// has no NaN.
uint8_t float_to_e2m1(float value);

/// The code of value `index` in a packed row: the low nibble is the even index.
inline uint8_t packed_e2m1(const uint8_t* row, int64_t index) {
  return (row[index / 2] >> (index % 2 * 4)) & 0xFu;
}

/// The value of an e4m3fn bit pattern. 0x7F and 0xFF are NaN; there is no infinity.
float e4m3_to_float(uint8_t bits);

/// The nearest e4m3fn, ties to even, saturating at 448 (infinities too). NaN becomes 0x7F with its
/// sign.
uint8_t float_to_e4m3(float value);

/// 2^(bits - 127); 0xFF is NaN.
float ue8m0_to_float(uint8_t bits);

// ---- NVFP4 ----

inline constexpr int64_t kNvfp4Block = 16;

/// Scales in one row of k values. The last block is short where k is no multiple of 16.
constexpr int64_t nvfp4_blocks(int64_t k) { return (k + kNvfp4Block - 1) / kNvfp4Block; }

/// A matrix [rows, k]: value(r, c) = e2m1(code) · e4m3(scale of block c / 16) · global.
struct Nvfp4Matrix {
  int64_t rows = 0;
  int64_t k = 0;                ///< Even.
  std::vector<uint8_t> codes;   ///< [rows, k / 2] bytes, two codes each.
  std::vector<uint8_t> scales;  ///< [rows, nvfp4_blocks(k)], linear.
  float global =
      1;  ///< Multiplies: `weight_scale_2` of ModelOpt, the inverse of `weight_global_scale`.
};

/// Quantises values [rows, k]. kInvalidArgument for an odd k, a size that does not fit, or a value
/// that is not finite.
Result<Nvfp4Matrix> quantise_nvfp4(std::span<const float> values, int64_t rows, int64_t k);

/// One row [k] without its global scale: code · scale, which needs at most six significant bits and
/// is exact in f32 and bf16.
void dequantise_nvfp4_row(const uint8_t* codes, const uint8_t* scales, std::span<float> out);

// ---- MXFP4 ----

inline constexpr int64_t kMxfp4Block = 32;

/// A matrix [rows, k]: value(r, c) = e2m1(code) · ue8m0(scale of block c / 32).
struct Mxfp4Matrix {
  int64_t rows = 0;
  int64_t k = 0;                ///< Even.
  std::vector<uint8_t> codes;   ///< [rows, k / 2] bytes, two codes each.
  std::vector<uint8_t> scales;  ///< [rows, ceil(k / 32)], linear.
};

/// Quantises values [rows, k] by the OCP rule: scale = 2^(floor(log2(amax)) - 2), 2^-127 where the
/// block is zero; codes saturate at 6. Errors as quantise_nvfp4().
Result<Mxfp4Matrix> quantise_mxfp4(std::span<const float> values, int64_t rows, int64_t k);

/// One row [k]: code · scale, exact in f32 for scales from 2^-126 to 2^125.
void dequantise_mxfp4_row(const uint8_t* codes, const uint8_t* scales, std::span<float> out);

// ---- FP8 ----

inline constexpr int64_t kFp8Block = 128;

/// Quantises values that share a scale: returns amax / 448 (1 where all are zero) and writes the
/// nearest e4m3 of value / scale. One tensor, one block of a matrix, or 128 values of an
/// activation. A value that is not finite makes a NaN of the scale.
float quantise_fp8(std::span<const float> values, uint8_t* codes);

/// A matrix [rows, k] in blocks of 128 x 128: value(r, c) = e4m3(code) · scale[r / 128, c / 128].
struct Fp8BlockMatrix {
  int64_t rows = 0;
  int64_t k = 0;
  std::vector<uint8_t> codes;  ///< [rows, k]
  std::vector<float> scales;   ///< [ceil(rows / 128), ceil(k / 128)]: `weight_scale_inv`.
};

/// kInvalidArgument for a size that does not fit, or a value that is not finite.
Result<Fp8BlockMatrix> quantise_fp8_block(std::span<const float> values, int64_t rows, int64_t k);

// ---- Where the scale of (row m, block k) lies, in bytes, for a matrix with `blocks` scales in a
// row ----

constexpr int64_t scale_offset_linear(int64_t m, int64_t k, int64_t blocks) {
  return m * blocks + k;
}

/// Blackwell's MMA order: tiles of 128 rows by 4 blocks, 512 bytes each.
constexpr int64_t scale_offset_128x4(int64_t m, int64_t k, int64_t blocks) {
  const int64_t tiles_k = (blocks + 3) / 4;
  return m / 128 * tiles_k * 512 + k / 4 * 512 + m % 32 * 16 + m % 128 / 32 * 4 + k % 4;
}

/// The same for few rows: tiles of 8 rows by 4 blocks, 32 bytes each.
constexpr int64_t scale_offset_8x4(int64_t m, int64_t k, int64_t blocks) {
  const int64_t tiles_k = (blocks + 3) / 4;
  return m / 8 * tiles_k * 32 + k / 4 * 32 + m % 8 * 4 + k % 4;
}

/// Bytes of all scales of a matrix in 128x4 order, and the distance from one expert's to the next
/// one's.
constexpr int64_t scale_bytes_128x4(int64_t rows, int64_t blocks) {
  return (rows + 127) / 128 * 128 * ((blocks + 3) / 4 * 4);
}

constexpr int64_t scale_bytes_8x4(int64_t rows, int64_t blocks) {
  return (rows + 7) / 8 * 8 * ((blocks + 3) / 4 * 4);
}

/// How a matrix's block scales lie in memory.
enum class ScaleOrder : uint8_t { kLinear, k128x4, k8x4 };

/// Bytes of the scales [rows, blocks] in an order, padding included.
int64_t scale_bytes(ScaleOrder order, int64_t rows, int64_t blocks);

/// Brings one-byte scales [rows, blocks] from one order into another. `to` has scale_bytes() bytes;
/// its padding becomes zero. Padding of `from` is not read.
void reorder_scales(ScaleOrder from_order, std::span<const uint8_t> from, ScaleOrder to_order,
                    std::span<uint8_t> to, int64_t rows, int64_t blocks);

}  // namespace moetune

// Activations as block floating point: what the integer kernels multiply. Included by the kernel
// files with AVX2 or more.
//
// Of 16 values along k the largest exponent decides the unit, 2^-14 of its power of two, and every
// value becomes the nearest 16-bit number of units. bf16 has 8 significant bits, so values down to
// 2^-7 of the block's largest are exact, and the others are off by at most 2^-15 of it. In sums
// over many values that is far below what rounding h to bf16 does, and integers stay exact.
#pragma once

#include <immintrin.h>

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

constexpr int kFixedPairs = kBlock / 2;

// Keeps every scale, and its product with any of nvfp4's or any usual one of mxfp4's, a normal
// number: what counts as zero is below 2^-101.
constexpr int kLeastExponent = 40;
constexpr int kNotFinite = 255;

inline float power_of_two(int biased_exponent) {
  const uint32_t bits = static_cast<uint32_t>(biased_exponent) << 23;
  float power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return power;
}

inline __m256i bf16_to_units(__m128i values, __m256 units_per_one) {
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(values), 16);
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(bits), units_per_one));
}

// 16 values as units. `scale`: what multiplies sums of their products. The integer kernels have
// doubled fp4 values in the upper byte of 16 bits, and scales that are worth 2^-8; that leaves
// a factor of 2 to be undone here. An infinity or a NaN makes NaN of its block's sums.
inline __m256i fix_block(const uint16_t* values, float& scale) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + 8));
  const __m128i no_sign = _mm_set1_epi16(0x7FFF);
  const __m128i larger = _mm_max_epu16(_mm_and_si128(low, no_sign), _mm_and_si128(high, no_sign));
  const __m128i inverted = _mm_minpos_epu16(_mm_xor_si128(larger, no_sign));
  int exponent = (_mm_extract_epi16(inverted, 0) ^ 0x7FFF) >> 7;
  const bool finite = exponent != kNotFinite;
  if (exponent < kLeastExponent) exponent = kLeastExponent;
  if (!finite) exponent = kNotFinite - 1;
  scale = finite ? power_of_two(exponent - 14 - 1) : __builtin_nanf("");
  const __m256 units_per_one = _mm256_set1_ps(power_of_two(2 * 127 + 14 - exponent));
  const __m256i units =
      _mm256_packs_epi32(bf16_to_units(low, units_per_one), bf16_to_units(high, units_per_one));
  return _mm256_permute4x64_epi64(units, 0xD8);
}

// out[i][0..3] = pair i of four tokens; i has `stride` items.
inline void store_transposed(const __m256i (&units)[4], int64_t stride, uint32_t* out) {
  const __m256i a = _mm256_unpacklo_epi32(units[0], units[1]);
  const __m256i b = _mm256_unpackhi_epi32(units[0], units[1]);
  const __m256i c = _mm256_unpacklo_epi32(units[2], units[3]);
  const __m256i d = _mm256_unpackhi_epi32(units[2], units[3]);
  const __m256i pairs[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c),
                            _mm256_unpacklo_epi64(b, d), _mm256_unpackhi_epi64(b, d)};
  const auto store = [out, stride](int i, __m128i four) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * stride), four);
  };
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) store(i, _mm256_castsi256_si128(pairs[i]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) store(4 + i, _mm256_extracti128_si256(pairs[i], 1));
}

// Tokens in fours, from the last ones on: what a last group of fewer than four writes too much lies
// where an earlier group, the scales or the next block are about to be written.
inline void pack_fixed_block(const uint16_t* const* rows, int tokens, int64_t k, uint32_t* out) {
  float scales[kMaxTokenTile];
  if (tokens == 1) {
    const __m256i units = fix_block(rows[0] + k, scales[0]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), units);
  } else {
    for (int first = (tokens - 1) / 4 * 4; first >= 0; first -= 4) {
      __m256i units[4] = {};
      for (int i = 0; i < 4 && first + i < tokens; ++i)
        units[i] = fix_block(rows[first + i] + k, scales[first + i]);
      store_transposed(units, tokens, out + first);
    }
  }
  __builtin_memcpy(out + kFixedPairs * tokens, scales,
                   static_cast<size_t>(tokens) * sizeof(scales[0]));
}

// FormatKernels::pack_x with, per block, [kFixedPairs][tokens] pairs of 16-bit integers, then
// [tokens] f32 scales.
void pack_fixed(const uint16_t* const* rows, int tokens, int64_t first_k, int64_t values,
                uint32_t* out) {
  const int64_t block_items = static_cast<int64_t>(kFixedPairs + 1) * tokens;
  const int64_t whole = values / kBlock * kBlock;
  for (int64_t k = 0; k < whole; k += kBlock, out += block_items)
    pack_fixed_block(rows, tokens, first_k + k, out);
  if (whole == values) return;
  uint16_t padded[kMaxTokenTile][kBlock] = {};
  const uint16_t* padded_rows[kMaxTokenTile];
  for (int m = 0; m < tokens; ++m) {
    __builtin_memcpy(padded[m], rows[m] + first_k + whole,
                     static_cast<size_t>(values - whole) * sizeof(padded[m][0]));
    padded_rows[m] = padded[m];
  }
  pack_fixed_block(padded_rows, tokens, 0, out);
}

}  // namespace
}  // namespace moetune::cpu

// Eight f32 lanes: AVX2, FMA and F16C. Included by kernels_avx2.cc only.
#pragma once

#include <immintrin.h>

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

struct Simd {
  static constexpr int kLanes = 8;
  static constexpr int kValuesPerItem = 1;
  static constexpr int kMaxTile = 6;  // 6 tokens x 16 rows: 12 accumulators of 16 registers.
  static constexpr int kWideTile = 2;
  static constexpr int kPartItems = 4;

  using Vec = __m256;
  using Weight = __m256;
  using Codes = __m256i;

  static Vec set1(float value) { return _mm256_set1_ps(value); }
  static Vec load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

  static Weight broadcast(const uint32_t* p) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*p)));
  }
  static Weight load_weight(const uint32_t* p) {
    return _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_weight(uint32_t* p, Weight w) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), _mm256_castps_si256(w));
  }
  static Vec multiply_add(Weight w, Weight x, Vec c) { return _mm256_fmadd_ps(w, x, c); }
  static Weight scaled(Weight w, Vec scale) { return _mm256_mul_ps(w, scale); }

  // Item `i` of the k pair at p.
  template <int i>
  static Weight pair_item(const uint8_t* p) {
    const __m256i raw = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_castsi256_ps(i == 0 ? _mm256_slli_epi32(raw, 16)
                                      : _mm256_and_si256(raw, _mm256_set1_epi32(-65536)));
  }

  // The e4m3 scales of eight rows. Shifted by 7 an e4m3 pattern is an f16 one that is worth 2^-8 of
  // it, subnormals included, and the conversion from f16 honours those in every rounding and
  // flushing mode.
  static Vec load_scales(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i halves = _mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.f));
  }

  static Codes load_codes(const uint8_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  // Which k of the eight item `i` of a part is: low nibbles are k = 0, 4, 1, 5 and high nibbles 2,
  // 6, 3, 7.
  static constexpr int item_index(int part, int i) { return (i & 1) * 4 + (i >> 1) + 2 * part; }
  // An fp4 value as bf16 needs two bytes, so two look-ups; interleaving them makes pairs of bf16
  // per row.
  template <int part>
  static void decode(Codes codes, Weight (&out)[kPartItems]) {
    const __m256i upper = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, -128, -65, -65, -65, -64, -64, -64, -64));
    const __m256i lower = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64));
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i mask = _mm256_set1_epi32(-65536);
    const __m256i index = _mm256_and_si256(part == 0 ? codes : _mm256_srli_epi16(codes, 4), nibble);
    const __m256i high = _mm256_shuffle_epi8(upper, index);
    const __m256i low = _mm256_shuffle_epi8(lower, index);
    const __m256i even = _mm256_unpacklo_epi8(low, high);
    const __m256i odd = _mm256_unpackhi_epi8(low, high);
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(even, 16));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(even, mask));
    out[2] = _mm256_castsi256_ps(_mm256_slli_epi32(odd, 16));
    out[3] = _mm256_castsi256_ps(_mm256_and_si256(odd, mask));
  }
};

}  // namespace
}  // namespace moetune::cpu

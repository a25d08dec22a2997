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

  using Vec = __m256;
  using Weight = __m256;

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

  // Item `i` of the k pair at p.
  template <int i>
  static Weight pair_item(const uint8_t* p) {
    const __m256i raw = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_castsi256_ps(i == 0 ? _mm256_slli_epi32(raw, 16)
                                      : _mm256_and_si256(raw, _mm256_set1_epi32(-65536)));
  }

  static Weight f16_item(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }

  // Item `i` of the k pair of e4m3 at p, worth 2^-8 of it. Shifted by 7 an e4m3 pattern is such an
  // f16 one, subnormals included, and the conversion from f16 honours those in every rounding and
  // flushing mode. What multiplies the lower of two bytes shifts it and extends its sign.
  template <int i>
  static Weight e4m3_item(const uint8_t* p) {
    const __m128i raw = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i shifted =
        i == 0 ? _mm_maddubs_epi16(_mm_set1_epi16(128), raw) : _mm_srai_epi16(raw, 1);
    return _mm256_cvtph_ps(_mm_and_si128(shifted, _mm_set1_epi16(-0x4080)));
  }

  // The scales of eight rows, worth 2^-8 of them. Below 2^-118 those of mxfp4 become zero.
  static Vec load_e4m3(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 7));
  }
  static Vec load_ue8m0(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m256i exponents = _mm256_cvtepu8_epi32(_mm_subs_epu8(bytes, _mm_set1_epi8(8)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponents, 23));
  }

  // Pairs (k, k+1) of 16-bit integers, and 32-bit sums of their products.
  using Fixed = __m256i;
  static Fixed broadcast_pair(const uint32_t* p) { return _mm256_set1_epi32(static_cast<int>(*p)); }
  static Fixed load_pairs(const uint32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store_pairs(uint32_t* p, Fixed pairs) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), pairs);
  }
  // A value that compilers know nothing about. Without, they add in another order, multiply far
  // ahead and run out of registers.
  static void hide(Fixed& value) { asm("" : "+x"(value)); }
  static Fixed multiply_pairs(Fixed w, Fixed x) {
    Fixed products = _mm256_madd_epi16(w, x);
    hide(products);
    return products;
  }
  static Fixed add_pairs(Fixed w, Fixed x, Fixed sum) {
    sum = _mm256_add_epi32(_mm256_madd_epi16(w, x), sum);
    hide(sum);
    return sum;
  }
  static Vec to_float(Fixed sums) { return _mm256_cvtepi32_ps(sums); }

  // Two of four pairs of eight rows, doubled and in the upper byte. The bytes of a row's word are,
  // low and high nibble, k = (0, 2), (4, 6), (1, 3), (5, 7).
  template <int part>
  static void decode_pairs(const uint8_t* p, Fixed (&out)[2]) {
    const __m256i values = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    const __m256i codes = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i index =
        _mm256_and_si256(part == 0 ? codes : _mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
    const __m256i found = _mm256_shuffle_epi8(values, index);
    out[0] = _mm256_slli_epi16(found, 8);
    out[1] = _mm256_and_si256(found, _mm256_set1_epi16(-256));
  }
  // Vectors of rows that share the activations of a direct tile: as many as its sums leave
  // registers for.
  static constexpr int shared_vectors(int tokens) { return tokens <= 2 ? 4 : 2; }
};

}  // namespace
}  // namespace moetune::cpu

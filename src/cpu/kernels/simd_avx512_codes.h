// What both AVX-512 kernel sets share: f32 lanes, scales, and the look-up of fp4 codes. Included by
// their simd headers only.
#pragma once

#include <immintrin.h>

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

struct Avx512Base {
  static constexpr int kLanes = 16;
  using Vec = __m512;

  static Vec set1(float value) { return _mm512_set1_ps(value); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

  // As in simd_avx2.h.
  static Vec load_e4m3(const uint8_t* p) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7));
  }
  static Vec load_ue8m0(const uint8_t* p) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    const __m512i exponents = _mm512_cvtepu8_epi32(_mm_subs_epu8(bytes, _mm_set1_epi8(8)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponents, 23));
  }
  template <int i>
  static __m512 e4m3_values(const uint8_t* p) {
    const __m256i raw = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i shifted =
        i == 0 ? _mm256_maddubs_epi16(_mm256_set1_epi16(128), raw) : _mm256_srai_epi16(raw, 1);
    return _mm512_cvtph_ps(_mm256_and_si256(shifted, _mm256_set1_epi16(-0x4080)));
  }

  // values[lowest four bits of each 16-bit lane of codes]. The look-up reads five bits, the fifth
  // of which belongs to the next code: both halves of the table are the same.
  static __m512i look_up(__m512i values, __m512i codes) {
    return _mm512_permutexvar_epi16(codes, values);
  }
};

}  // namespace
}  // namespace moetune::cpu

// What both AVX-512 kernel sets share: f32 lanes and the layout of fp4 codes. Included by their
// simd headers only.
#pragma once

#include <immintrin.h>

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

struct Avx512Base {
  static constexpr int kLanes = 16;
  using Vec = __m512;
  using Codes = __m512i;

  static Vec set1(float value) { return _mm512_set1_ps(value); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

  // See simd_avx2.h for why through f16.
  static Vec load_scales(const uint8_t* p) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.f));
  }

  // Sixteen rows x eight k, brought into the order in which row r's lane of 32 bits holds its eight
  // codes: the even k in the nibbles of its lower half, the odd k in those of its upper half.
  static Codes load_codes(const uint8_t* p) {
    const __m512i order =
        _mm512_set_epi16(31, 27, 30, 26, 29, 25, 28, 24, 23, 19, 22, 18, 21, 17, 20, 16, 15, 11, 14,
                         10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0);
    return _mm512_permutexvar_epi16(order, _mm512_load_si512(p));
  }
};

}  // namespace
}  // namespace moetune::cpu

// Sixteen f32 lanes: AVX-512 F, BW and VL, without bf16 dot products. Included by kernels_avx512.cc
// only.
#pragma once

#include "cpu/kernels/simd_avx512_codes.h"

namespace moetune::cpu {
namespace {

struct Simd : Avx512Base {
  static constexpr int kValuesPerItem = 1;
  static constexpr int kMaxTile = 12;  // 12 tokens x 32 rows: 24 accumulators of 32 registers.
  static constexpr int kWideTile = 12;
  static constexpr int kPartItems = 4;
  using Weight = __m512;

  static Weight broadcast(const uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  static Weight load_weight(const uint32_t* p) { return _mm512_castsi512_ps(_mm512_load_si512(p)); }
  static void store_weight(uint32_t* p, Weight w) { _mm512_store_si512(p, _mm512_castps_si512(w)); }
  static Vec multiply_add(Weight w, Weight x, Vec c) { return _mm512_fmadd_ps(w, x, c); }
  static Weight scaled(Weight w, Vec scale) { return _mm512_mul_ps(w, scale); }

  template <int i>
  static Weight pair_item(const uint8_t* p) {
    const __m512i raw = _mm512_load_si512(p);
    return _mm512_castsi512_ps(i == 0 ? _mm512_slli_epi32(raw, 16)
                                      : _mm512_and_si512(raw, _mm512_set1_epi32(-65536)));
  }

  // Part 0 is k = 0, 2, 4, 6 and part 1 is k = 1, 3, 5, 7. The look-up reads four bits of each
  // lane, so nothing needs masking.
  static constexpr int item_index(int part, int i) { return 2 * i + part; }
  template <int part>
  static void decode(Codes codes, Weight (&out)[kPartItems]) {
    const __m512 values = _mm512_setr_ps(0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -0.5f,
                                         -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f);
    out[0] = _mm512_permutexvar_ps(part == 0 ? codes : _mm512_srli_epi32(codes, 16), values);
    out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 16 * part + 4), values);
    out[2] = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 16 * part + 8), values);
    out[3] = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 16 * part + 12), values);
  }
};

}  // namespace
}  // namespace moetune::cpu

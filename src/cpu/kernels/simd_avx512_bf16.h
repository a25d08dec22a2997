// Sixteen f32 lanes fed by bf16 dot products of two: AVX-512 with BF16. Included by
// kernels_avx512_bf16.cc only.
//
// The instruction flushes subnormal inputs and rounds its two sums separately; neither matters next
// to the rounding of bf16 inputs.
#pragma once

#include "cpu/kernels/simd_avx512_codes.h"

namespace moetune::cpu {
namespace {

struct Simd : Avx512Base {
  static constexpr int kValuesPerItem = 2;
  static constexpr int kMaxTile = 12;
  static constexpr int kWideTile = 12;
  static constexpr int kPartItems = 2;
  using Weight = __m512i;

  static Weight broadcast(const uint32_t* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
  static Weight load_weight(const uint32_t* p) { return _mm512_load_si512(p); }
  static void store_weight(uint32_t* p, Weight w) { _mm512_store_si512(p, w); }
  static Vec multiply_add(Weight w, Weight x, Vec c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
  }
  // Exact: fp4 times e4m3 or a power of two has at most six significant bits.
  static Weight scaled(Weight w, Vec scale) {
    const __m512i mask = _mm512_set1_epi32(-65536);
    const __m512 low = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), scale);
    const __m512 high = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(w, mask)), scale);
    return _mm512_or_si512(_mm512_castps_si512(high),
                           _mm512_srli_epi32(_mm512_castps_si512(low), 16));
  }

  template <int i>
  static Weight pair_item(const uint8_t* p) {
    return _mm512_load_si512(p);
  }

  // Both values of the k pair of e4m3 at p, each worth 2^-8: four significant bits, so bf16 is
  // exact and the lower half of their f32 is zero.
  template <int i>
  static Weight e4m3_item(const uint8_t* p) {
    return _mm512_or_si512(_mm512_castps_si512(e4m3_values<1>(p)),
                           _mm512_srli_epi32(_mm512_castps_si512(e4m3_values<0>(p)), 16));
  }

  // Part 0 is the pairs k = (0, 1), (2, 3) and part 1 is (4, 5), (6, 7).
  using Codes = __m512i;
  static Codes load_codes(const uint8_t* p) { return _mm512_load_si512(p); }
  static constexpr int item_index(int part, int i) { return 2 * part + i; }
  template <int part>
  static void decode(Codes codes, Weight (&out)[kPartItems]) {
    const __m256i half =
        _mm256_setr_epi16(0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, -0x8000,
                          -0x4100, -0x4080, -0x4040, -0x4000, -0x3FC0, -0x3F80, -0x3F40);
    const __m512i values = _mm512_broadcast_i64x4(half);
    out[0] = look_up(values, part == 0 ? codes : _mm512_srli_epi16(codes, 8));
    out[1] = look_up(values, _mm512_srli_epi16(codes, 8 * part + 4));
  }
};

}  // namespace
}  // namespace moetune::cpu

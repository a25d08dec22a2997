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
  using Weight = __m512;

  static Weight broadcast(const uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  static Weight load_weight(const uint32_t* p) { return _mm512_castsi512_ps(_mm512_load_si512(p)); }
  static void store_weight(uint32_t* p, Weight w) { _mm512_store_si512(p, _mm512_castps_si512(w)); }
  static Vec multiply_add(Weight w, Weight x, Vec c) { return _mm512_fmadd_ps(w, x, c); }

  template <int i>
  static Weight pair_item(const uint8_t* p) {
    const __m512i raw = _mm512_load_si512(p);
    return _mm512_castsi512_ps(i == 0 ? _mm512_slli_epi32(raw, 16)
                                      : _mm512_and_si512(raw, _mm512_set1_epi32(-65536)));
  }

  static Weight f16_item(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <int i>
  static Weight e4m3_item(const uint8_t* p) {
    return e4m3_values<i>(p);
  }

  // Pairs (k, k+1) of 16-bit integers, and 32-bit sums of their products.
  using Fixed = __m512i;
  static Fixed broadcast_pair(const uint32_t* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
  static Fixed load_pairs(const uint32_t* p) { return _mm512_load_si512(p); }
  static void store_pairs(uint32_t* p, Fixed pairs) { _mm512_store_si512(p, pairs); }
  // A value that compilers know nothing about. Without, they add in another order, multiply far
  // ahead and run out of registers.
  static void hide(Fixed& value) { asm("" : "+v"(value)); }
  static Fixed multiply_pairs(Fixed w, Fixed x) {
    Fixed products = _mm512_madd_epi16(w, x);
    hide(products);
    return products;
  }
  static Fixed add_pairs(Fixed w, Fixed x, Fixed sum) {
    sum = _mm512_add_epi32(_mm512_madd_epi16(w, x), sum);
    hide(sum);
    return sum;
  }
  static Vec to_float(Fixed sums) { return _mm512_cvtepi32_ps(sums); }

  // Two of four pairs of sixteen rows, doubled and in the upper byte.
  template <int part>
  static void decode_pairs(const uint8_t* p, Fixed (&out)[2]) {
    const __m256i half = _mm256_slli_epi16(
        _mm256_setr_epi16(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), 8);
    const __m512i values = _mm512_broadcast_i64x4(half);
    const __m512i codes = _mm512_load_si512(p);
    out[0] = look_up(values, part == 0 ? codes : _mm512_srli_epi16(codes, 4));
    out[1] = look_up(values, _mm512_srli_epi16(codes, 4 * (2 + part)));
  }
  // Vectors of rows that share the activations of a direct tile.
  static constexpr int shared_vectors(int /*tokens*/) { return 2; }
};

}  // namespace
}  // namespace moetune::cpu

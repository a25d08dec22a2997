// Four lanes in the compiler's own vector types: whatever the target's baseline has (SSE2 on
// x86-64, NEON on AArch64). Included by kernels_portable.cc only.
#pragma once

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

struct Simd {
  static constexpr int kLanes = 4;
  static constexpr int kValuesPerItem = 1;
  static constexpr int kMaxTile = 3;
  static constexpr int kWideTile = 1;
  static constexpr int kPartItems = 4;

  typedef float Vec __attribute__((vector_size(16)));
  typedef uint32_t Bits __attribute__((vector_size(16)));
  using Weight = Vec;
  using Codes = const uint8_t*;

  static Vec set1(float value) { return Vec{value, value, value, value}; }
  static Vec load(const float* p) {
    Vec v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  static void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }
  static Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }

  static Weight broadcast(const uint32_t* p) { return reinterpret_cast<Vec>(Bits{*p, *p, *p, *p}); }
  static Weight load_weight(const uint32_t* p) {
    Weight w;
    __builtin_memcpy(&w, p, sizeof(w));
    return w;
  }
  static void store_weight(uint32_t* p, Weight w) { __builtin_memcpy(p, &w, sizeof(w)); }
  static Vec multiply_add(Weight w, Weight x, Vec c) { return w * x + c; }
  static Weight scaled(Weight w, Vec scale) { return w * scale; }

  // Item `i` of the k pair at p.
  template <int i>
  static Weight pair_item(const uint8_t* p) {
    Bits raw;
    __builtin_memcpy(&raw, p, sizeof(raw));
    return reinterpret_cast<Vec>(i == 0 ? raw << 16 : raw & 0xFFFF0000u);
  }

  // The e4m3 scales of four rows, each worth 2^-8 of it, as where they are made through f16.
  static Vec load_scales(const uint8_t* p) {
    Vec scales{};
    for (int lane = 0; lane < kLanes; ++lane) {
      const int exponent = (p[lane] >> 3) & 15;
      const int mantissa = p[lane] & 7;
      const uint32_t power = static_cast<uint32_t>((exponent == 0 ? 1 : exponent) - 7 - 3 - 8 + 127)
                             << 23;
      float unit;
      __builtin_memcpy(&unit, &power, sizeof(unit));
      scales[lane] = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) * unit;
    }
    return scales;
  }

  static Codes load_codes(const uint8_t* p) { return p; }
  static constexpr int item_index(int part, int i) { return (i & 1) * 4 + (i >> 1) + 2 * part; }
  template <int part>
  static void decode(Codes codes, Weight (&out)[kPartItems]) {
    static constexpr float kValues[16] = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                          -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
    for (int i = 0; i < kPartItems; ++i) {
      const uint8_t* bytes = codes + i;
      Weight row_values{};
      for (int lane = 0; lane < kLanes; ++lane)
        row_values[lane] = kValues[(bytes[4 * lane] >> (4 * part)) & 15];
      out[i] = row_values;
    }
  }
};

}  // namespace
}  // namespace moetune::cpu

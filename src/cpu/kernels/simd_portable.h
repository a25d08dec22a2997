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

  static constexpr uint32_t kLeastNormal = 1u << 23;
  static constexpr uint32_t kRebias = 112u << 23;  // From the exponents of f16.

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

  // Four small integers.
  template <typename Small>
  static Bits widen(const uint8_t* p) {
    typedef Small Smalls __attribute__((vector_size(4 * sizeof(Small))));
    Smalls four;
    __builtin_memcpy(&four, p, sizeof(four));
    return __builtin_convertvector(four, Bits);
  }

  // Item `i` of the k pair at p.
  template <int i>
  static Weight pair_item(const uint8_t* p) {
    Bits raw;
    __builtin_memcpy(&raw, p, sizeof(raw));
    return reinterpret_cast<Vec>(i == 0 ? raw << 16 : raw & 0xFFFF0000u);
  }

  // What an f16 or e4m3 pattern is, shifted to where f32 has exponent and mantissa: the number
  // itself for f16, 2^-8 of it for e4m3. Subnormals get the exponent of the least normal number,
  // whose hidden bit is taken off again; f32 has those as subnormals too, which not every mode
  // honours.
  static Vec widened(Bits bits) {
    const Bits subnormal = reinterpret_cast<Bits>(bits < kLeastNormal);
    const Bits hidden = subnormal & (kRebias + kLeastNormal);
    const Vec value = reinterpret_cast<Vec>(bits + kRebias + (subnormal & kLeastNormal));
    return value - reinterpret_cast<Vec>(hidden);
  }

  static Weight f16_item(const uint8_t* p) {
    const Bits raw = widen<uint16_t>(p);
    const Bits magnitude = (raw & 0x7FFFu) << 13;
    const Bits not_finite = reinterpret_cast<Bits>(magnitude >= (31u << 23)) & kRebias;
    const Bits value = reinterpret_cast<Bits>(widened(magnitude)) + not_finite;
    return reinterpret_cast<Vec>(value | (raw & 0x8000u) << 16);
  }

  // e4m3 and ue8m0 are worth 2^-8 of themselves, as where e4m3 is converted through f16. ue8m0
  // below 2^-118 becomes zero.
  static Vec from_e4m3(Bits raw) {
    const Vec magnitude = widened((raw & 0x7Fu) << 20);
    return reinterpret_cast<Vec>(reinterpret_cast<Bits>(magnitude) | (raw & 0x80u) << 24);
  }
  template <int i>
  static Weight e4m3_item(const uint8_t* p) {
    return from_e4m3(widen<uint16_t>(p) >> (8 * i) & 0xFFu);
  }
  static Vec load_e4m3(const uint8_t* p) { return from_e4m3(widen<uint8_t>(p)); }
  static Vec load_ue8m0(const uint8_t* p) {
    const Bits raw = widen<uint8_t>(p);
    return reinterpret_cast<Vec>(reinterpret_cast<Bits>(raw > 8u) & (raw - 8u) << 23);
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

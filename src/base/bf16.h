// bfloat16 as its bits: the upper half of an IEEE f32, one sign, eight exponent and seven mantissa
// bits.
//
// Written without branches on the value, so that compilers vectorise loops over these.
#pragma once

#include <bit>
#include <cstdint>

namespace moetune {

/// The value of a bf16 bit pattern. Exact; a NaN keeps its payload.
inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even. Values from halfway above the largest finite bf16 become
/// infinity, as in IEEE 754; a NaN stays a NaN (quiet, with its sign and the upper bits of its
/// payload).
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<uint16_t>(is_nan ? quiet_nan : rounded);
}

/// The nearest value that bf16 can hold.
inline float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

}  // namespace moetune

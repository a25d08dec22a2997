// IEEE 754 binary16 ("half", fp16) as bit patterns.
#pragma once

#include <bit>
#include <cstdint>

namespace moetune {

/// The value of a binary16 bit pattern. Exact; a NaN stays one.
inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7FFFu;
  if (rest >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
  // As an f32 pattern `rest << 13` is the value times 2^-112, subnormals included.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

/// Rounds to nearest, ties to even. From halfway above the largest finite value (65504) on it is
/// infinity, as in IEEE 754; a NaN becomes the quiet NaN of its sign.
inline uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520
  if (magnitude < 0x38800000u) {
    // Below the smallest normal, 2^-14: adding 1/2 leaves a step of 2^-24, the subnormals' own, and
    // rounds to it.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

}  // namespace moetune

#include "base/f16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace moetune {
namespace {

double f16_by_definition(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double mantissa = bits & 0x3FF;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1 + mantissa / 1024, exponent - 15);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

TEST(F16, EveryPatternDecodesByDefinitionAndSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = f16_to_float(static_cast<uint16_t>(bits));
    if ((bits & 0x7FFF) > 0x7C00) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(float_to_f16(value), (bits & 0x8000) | 0x7E00);
      continue;
    }
    if ((bits & 0x7FFF) == 0x7C00) {
      EXPECT_TRUE(std::isinf(value));
    } else {
      EXPECT_EQ(value, f16_by_definition(bits));
    }
    EXPECT_EQ(std::signbit(value), bits >> 15 != 0);
    EXPECT_EQ(float_to_f16(value), bits);
  }
}

// Between each two neighbours: their middle is a tie, and one step beside it is not.
TEST(F16, RoundsToTheNearestOfEveryTwoNeighbours) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const auto middle =
        static_cast<float>((f16_by_definition(bits) + f16_by_definition(bits + 1)) / 2);
    const auto even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(float_to_f16(middle), even) << bits;
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), bits) << bits;
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 1e6f)), bits + 1) << bits;
    EXPECT_EQ(float_to_f16(-std::nextafter(middle, 1e6f)), (bits + 1) | 0x8000) << bits;
  }
}

TEST(F16, OverflowsToInfinityOnlyFromHalfwayAboveTheLargest) {
  EXPECT_EQ(float_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
}

}  // namespace
}  // namespace moetune

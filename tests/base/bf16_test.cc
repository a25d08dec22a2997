#include "base/bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moetune {
namespace {

TEST(Bf16, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    const uint16_t back = float_to_bf16(value);
    if (std::isnan(value)) {
      EXPECT_EQ(back, bits | 0x40u);  // Made quiet, nothing else.
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

TEST(Bf16, TiesGoToTheEvenPattern) {
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQ(float_to_bf16(-1.0f - 0x1p-8f), 0xBF80);
}

// Between each two neighbours: their middle is a tie, and one step beside it is not.
TEST(Bf16, RoundsToTheNearestOfEveryTwoNeighbours) {
  for (uint32_t bits = 0; bits < 0x7F7F; ++bits) {
    const uint32_t middle = (bits << 16) | 0x8000u;
    const auto even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(float_to_bf16(std::bit_cast<float>(middle)), even);
    EXPECT_EQ(float_to_bf16(std::bit_cast<float>(middle - 1)), bits);
    EXPECT_EQ(float_to_bf16(std::bit_cast<float>(middle + 1)), bits + 1);
    EXPECT_EQ(float_to_bf16(-std::bit_cast<float>(middle + 1)), (bits + 1) | 0x8000u);
  }
}

TEST(Bf16, OverflowsToInfinityOnlyFromHalfwayAboveTheLargest) {
  const uint32_t halfway = 0x7F7F8000u;
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(halfway - 1)), 0x7F7F);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(halfway)), 0x7F80);
  EXPECT_EQ(float_to_bf16(-std::numeric_limits<float>::infinity()), 0xFF80);
}

TEST(Bf16, NanNeverBecomesInfinity) {
  // Its payload is in the lower half only: dropping that half would leave infinity; rounding it up,
  // zero.
  for (uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFF80FFFFu, 0xFFFFFFFFu}) {
    const uint16_t rounded = float_to_bf16(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(bf16_to_float(rounded)));
    EXPECT_EQ(rounded >> 15, bits >> 31);
  }
}

}  // namespace
}  // namespace moetune

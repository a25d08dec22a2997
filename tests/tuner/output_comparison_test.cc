#include "tuner/output_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/bf16.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 64;
const std::vector<int64_t> kAllRows = {0, 1, 2};

std::vector<float> values() {
  std::vector<float> made(kRows * kWidth);
  for (size_t i = 0; i < made.size(); ++i) made[i] = std::sin(static_cast<float>(i)) * 10;
  return made;
}

std::string compare(std::vector<float> reference, std::vector<float> got) {
  return why_different({"y", DataType::kF32, {kRows, kWidth}, reference.data()},
                       {"y", DataType::kF32, {kRows, kWidth}, got.data()}, kAllRows);
}

std::string compare_bf16(const std::vector<float>& reference, const std::vector<float>& got) {
  std::vector<uint16_t> a;
  std::vector<uint16_t> b;
  for (float value : reference) a.push_back(float_to_bf16(value));
  for (float value : got) b.push_back(float_to_bf16(value));
  return why_different({"y", DataType::kBf16, {kRows, kWidth}, a.data()},
                       {"y", DataType::kBf16, {kRows, kWidth}, b.data()}, kAllRows);
}

std::vector<float> changed(std::vector<float> made, const std::function<void(float*)>& change) {
  change(made.data());
  return made;
}

TEST(OutputComparison, RoundingOfAnotherOrderPasses) {
  const std::vector<float> reference = values();
  std::vector<float> got = reference;
  for (size_t i = 0; i < got.size(); ++i) got[i] *= 1 + (i % 2 == 0 ? 2e-5f : -2e-5f);
  EXPECT_EQ(compare(reference, reference), "");
  EXPECT_EQ(compare(reference, got), "");
  for (size_t i = 0; i < got.size(); ++i) got[i] = reference[i] * (i % 2 == 0 ? 1.003f : 0.997f);
  EXPECT_EQ(compare_bf16(reference, got), "") << "one more rounding to bf16";
  EXPECT_NE(compare(reference, got), "") << "f32 is held to more";
}

TEST(OutputComparison, OneWrongValueIsFoundAndItsRowNamed) {
  const std::vector<float> reference = values();
  const auto with = [&](float value) {
    return compare(reference, changed(reference, [&](float* y) { y[kWidth + 5] = value; }));
  };
  EXPECT_THAT(with(reference[kWidth + 5] + 1), HasSubstr("y row 1: relative RMS error"));
  EXPECT_THAT(with(0), HasSubstr("y row 1"));
  EXPECT_THAT(with(NAN), HasSubstr("y row 1: value 5 is not finite"));
  EXPECT_THAT(with(INFINITY), HasSubstr("y row 1: value 5 is not finite"));
}

TEST(OutputComparison, ASmallRowAmongLargeOnesIsHeldToItsOwnSize) {
  std::vector<float> reference = values();
  for (int64_t i = 0; i < kWidth; ++i) reference[static_cast<size_t>(i)] *= 1e-6f;
  const auto got = changed(reference, [](float* y) {
    for (int64_t i = 0; i < kWidth; ++i) y[i] *= 1.5f;
  });
  EXPECT_THAT(compare(reference, got), HasSubstr("y row 0"));
}

TEST(OutputComparison, ARowOfZerosMustBeZeros) {
  std::vector<float> reference(kRows * kWidth, 0.0f);
  EXPECT_EQ(compare(reference, reference), "");
  EXPECT_NE(compare(reference, changed(reference, [](float* y) { y[0] = 1e-20f; })), "");
}

TEST(OutputComparison, WhatTheDefaultMakesOfInfinitiesOthersMustMakeToo) {
  std::vector<float> reference = values();
  reference[7] = INFINITY;
  reference[8] = NAN;
  EXPECT_EQ(compare(reference, reference), "");
  EXPECT_THAT(compare(reference, changed(reference, [](float* y) { y[7] = 3; })),
              HasSubstr("value 7 is 3, the default's is inf"));
  EXPECT_NE(compare(reference, changed(reference, [](float* y) { y[7] = -INFINITY; })), "");
  EXPECT_NE(compare(reference, changed(reference, [](float* y) { y[8] = INFINITY; })), "");
}

TEST(OutputComparison, OnlyTheGivenRowsAreComparedInTheirOrder) {
  std::vector<float> reference = values();
  std::vector<float> got(reference.begin() + 2 * kWidth, reference.end());
  const std::vector<int64_t> last = {2};
  EXPECT_EQ(why_different({"y", DataType::kF32, {kRows, kWidth}, reference.data()},
                          {"y", DataType::kF32, {1, kWidth}, got.data()}, last),
            "");
}

TEST(OutputComparison, IntegersMustAgreeBitForBit) {
  std::vector<int32_t> reference = {1, 2, 3, 4};
  std::vector<int32_t> got = reference;
  const std::vector<int64_t> rows = {0, 1};
  const Tensor expected{"ids", DataType::kI32, {2, 2}, reference.data()};
  const Tensor found{"ids", DataType::kI32, {2, 2}, got.data()};
  EXPECT_EQ(why_different(expected, found, rows), "");
  got[3] = 5;
  EXPECT_EQ(why_different(expected, found, rows),
            "ids row 1: byte 4 is 0x05, the default's is 0x04");
}

TEST(OutputComparison, HalfPrecisionIsReadRight) {
  // 1, -2, the largest, the smallest normal, the smallest subnormal, zero.
  std::vector<uint16_t> bits = {0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x0000};
  std::vector<uint16_t> other = bits;
  const std::vector<int64_t> rows = {0, 1, 2, 3, 4, 5};
  const Tensor expected{"y", DataType::kF16, {6, 1}, bits.data()};
  const Tensor found{"y", DataType::kF16, {6, 1}, other.data()};
  EXPECT_EQ(why_different(expected, found, rows), "");
  for (size_t i = 0; i < bits.size(); ++i) {
    other = bits;
    other[i] ^= 0x0010;
    EXPECT_NE(why_different(expected, found, rows), "") << i;
  }
  other = bits;
  other[2] = 0x7C00;
  EXPECT_THAT(why_different(expected, found, rows), HasSubstr("y row 2: value 0 is not finite"));
}

}  // namespace
}  // namespace moetune

#include "ops/moe/number_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/bf16.h"
#include "base/random.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- Slow definitions: the nearest of all values, ties to the even code, larger ones to the last
// ----

template <typename Decode>
uint32_t nearest_code(float value, uint32_t codes, Decode decode) {
  const double magnitude = std::min<double>(std::abs(value), decode(codes - 1));
  uint32_t best = 0;
  double best_distance = kInfinity;
  for (uint32_t code = 0; code < codes; ++code) {
    const double distance = std::abs(decode(code) - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  return best;
}

double e4m3_by_definition(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15);
  const int mantissa = static_cast<int>(bits & 7);
  const double magnitude = exponent == 0 ? std::pow(2, -6) * mantissa / 8
                                         : std::pow(2, exponent - 7) * (1 + mantissa / 8.0);
  return bits >> 7 != 0 ? -magnitude : magnitude;
}

// Values around everything that matters: all neighbours, the middles between them, and a step
// beside each.
template <typename Decode>
std::vector<float> interesting_values(uint32_t codes, Decode decode) {
  std::vector<float> values = {0.0f, 1e-30f, 1e-45f, 1e30f, kInfinity};
  for (uint32_t code = 0; code + 1 < codes; ++code) {
    const float low = decode(code);
    const float middle = (low + decode(code + 1)) / 2;
    for (float value : {low, middle}) {
      values.push_back(value);
      values.push_back(std::nextafter(value, kInfinity));
      if (value > 0) values.push_back(std::nextafter(value, 0.0f));
    }
  }
  return values;
}

TEST(E2M1, RoundsToNearestTiesToEvenAndSaturates) {
  const auto decode = [](uint32_t code) { return kE2M1Values[code]; };
  for (float value : interesting_values(8, decode)) {
    EXPECT_EQ(float_to_e2m1(value), nearest_code(value, 8, decode)) << value;
    EXPECT_EQ(float_to_e2m1(-value), nearest_code(value, 8, decode) | 8u) << -value;
  }
}

TEST(E2M1, PublishedVectors) {
  const std::vector<std::pair<float, float>> vectors = {{0.25f, 0}, {0.75f, 1},  {1.25f, 1},
                                                        {1.75f, 2}, {2.5f, 2},   {3.5f, 4},
                                                        {5, 4},     {5.001f, 6}, {100, 6}};
  for (const auto& [value, expected] : vectors) {
    EXPECT_EQ(kE2M1Values[float_to_e2m1(value)], expected) << value;
    EXPECT_EQ(kE2M1Values[float_to_e2m1(-value)], -expected) << value;
  }
}

TEST(E2M1, EveryCodeSurvivesTheRoundTrip) {
  for (uint32_t code = 0; code < 16; ++code) EXPECT_EQ(float_to_e2m1(kE2M1Values[code]), code);
}

TEST(E2M1, LowNibbleIsTheEvenIndex) {
  const uint8_t row[] = {0x21, 0x43};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(packed_e2m1(row, i), i + 1);
}

TEST(E4M3, EveryPatternDecodesByDefinition) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float value = e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, e4m3_by_definition(bits)) << bits;
      EXPECT_EQ(std::signbit(value), bits >= 128);
      EXPECT_EQ(float_to_e4m3(value), bits);
    }
  }
}

TEST(E4M3, RoundsToNearestTiesToEvenAndSaturates) {
  const auto decode = [](uint32_t code) { return static_cast<float>(e4m3_by_definition(code)); };
  for (float value : interesting_values(0x7F, decode)) {
    EXPECT_EQ(float_to_e4m3(value), nearest_code(value, 0x7F, decode)) << value;
    EXPECT_EQ(float_to_e4m3(-value), nearest_code(value, 0x7F, decode) | 0x80u) << -value;
  }
}

TEST(E4M3, PublishedVectors) {
  EXPECT_EQ(float_to_e4m3(1.0f), 0x38);
  EXPECT_EQ(float_to_e4m3(0.0625f), 0x18);
  EXPECT_EQ(float_to_e4m3(448.0f), 0x7E);
  EXPECT_EQ(float_to_e4m3(0x1p-6f), 0x08);
  EXPECT_EQ(float_to_e4m3(0x1p-9f), 0x01);
  EXPECT_EQ(float_to_e4m3(464.0f), 0x7E);
  EXPECT_EQ(float_to_e4m3(kInfinity), 0x7E);
  EXPECT_EQ(float_to_e4m3(1.0625f), 0x38);
  EXPECT_EQ(float_to_e4m3(1.1875f), 0x3A);
  EXPECT_EQ(float_to_e4m3(std::nanf("")), 0x7F);
  EXPECT_EQ(float_to_e4m3(-std::nanf("")), 0xFF);
}

TEST(Ue8m0, EveryPatternIsItsPowerOfTwo) {
  for (int bits = 0; bits < 255; ++bits) {
    EXPECT_EQ(ue8m0_to_float(static_cast<uint8_t>(bits)), std::pow(2.0, bits - 127));
  }
  EXPECT_TRUE(std::isnan(ue8m0_to_float(0xFF)));
}

// ---- NVFP4 ----

std::vector<float> normal_values(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

TEST(Nvfp4, EveryCodeTimesEveryScaleIsExactInBf16) {
  for (uint32_t bits = 0; bits < 0x7F; ++bits) {
    for (uint8_t code = 0; code < 16; ++code) {
      const auto scale = static_cast<uint8_t>(bits);
      float value = 0;
      dequantise_nvfp4_row(&code, &scale, std::span(&value, 1));
      EXPECT_EQ(value, kE2M1Values[code] * e4m3_by_definition(bits));
      EXPECT_EQ(value, round_to_bf16(value));
    }
  }
}

// Written once more from formats.md, in f64.
TEST(Nvfp4, QuantisesByDefinition) {
  const int64_t rows = 3;
  const int64_t k = 40;  // The last block holds 8.
  std::vector<float> values = normal_values(rows * k, 1);
  for (int64_t i = 16; i < 32; ++i) values[static_cast<size_t>(k + i)] = 0;  // A block of zeros.
  const Result<Nvfp4Matrix> result = quantise_nvfp4(values, rows, k);
  ASSERT_TRUE(result.ok());
  const Nvfp4Matrix& matrix = *result;
  ASSERT_EQ(matrix.codes.size(), static_cast<size_t>(rows * k / 2));
  ASSERT_EQ(matrix.scales.size(), static_cast<size_t>(rows * 3));

  float largest = 0;
  for (float value : values) largest = std::max(largest, std::abs(value));
  const float gs = 448.0f * 6.0f / largest;
  EXPECT_FLOAT_EQ(matrix.global, 1 / gs);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < k; ++c) {
      const int64_t block = c / 16;
      float block_largest = 0;
      for (int64_t i = block * 16; i < std::min(k, block * 16 + 16); ++i) {
        block_largest = std::max(block_largest, std::abs(values[static_cast<size_t>(row * k + i)]));
      }
      const uint8_t scale = float_to_e4m3(gs * block_largest / 6);
      EXPECT_EQ(matrix.scales[static_cast<size_t>(row * 3 + block)], scale);
      const float x = values[static_cast<size_t>(row * k + c)];
      const uint8_t code = scale == 0 ? 0 : float_to_e2m1(x / (e4m3_to_float(scale) / gs));
      EXPECT_EQ(packed_e2m1(&matrix.codes[static_cast<size_t>(row * k / 2)], c), code);
    }
  }
}

TEST(Nvfp4, ErrorIsAtMostHalfAStepOfTheBlock) {
  const std::vector<float> values = normal_values(64 * 48, 2);
  const Nvfp4Matrix matrix = quantise_nvfp4(values, 64, 48).value();
  std::vector<float> row(48);
  for (size_t r = 0; r < 64; ++r) {
    dequantise_nvfp4_row(&matrix.codes[r * 24], &matrix.scales[r * 3], row);
    for (size_t c = 0; c < 48; ++c) {
      const float unit = e4m3_to_float(matrix.scales[r * 3 + c / 16]) * matrix.global;
      // Between 4 and 6 the codes are two units apart; rounding the scale may cut off a little more
      // above 6.
      EXPECT_LE(std::abs(row[c] * matrix.global - values[r * 48 + c]), 1.01f * unit);
    }
  }
}

TEST(Nvfp4, ZerosAndTinyValuesStayFinite) {
  const Nvfp4Matrix zeros = quantise_nvfp4(std::vector<float>(32, 0.0f), 1, 32).value();
  EXPECT_EQ(zeros.global, 1);
  EXPECT_THAT(zeros.codes, ::testing::Each(0));
  EXPECT_THAT(zeros.scales, ::testing::Each(0));
  for (float tiny : {1e-38f, 1e-42f, 1e-45f}) {
    const Nvfp4Matrix matrix = quantise_nvfp4(std::vector<float>(16, tiny), 1, 16).value();
    EXPECT_TRUE(std::isfinite(matrix.global)) << tiny;
    EXPECT_NE(matrix.scales[0] & 0x7F, 0x7F) << tiny;
  }
}

TEST(Nvfp4, BlocksFarBelowTheLargestValueBecomeZero) {
  std::vector<float> values(32, 1e-9f);
  values[0] = 1000;
  const Nvfp4Matrix matrix = quantise_nvfp4(values, 1, 32).value();
  EXPECT_EQ(matrix.scales[1], 0);
  for (int64_t c = 16; c < 32; ++c) EXPECT_EQ(packed_e2m1(matrix.codes.data(), c), 0);
}

TEST(Nvfp4, RefusesWhatItCannotHold) {
  EXPECT_EQ(quantise_nvfp4(std::vector<float>(15), 1, 15).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(quantise_nvfp4(std::vector<float>(15), 1, 16).error().code,
            ErrorCode::kInvalidArgument);
  std::vector<float> values(64, 1.0f);
  values[37] = kInfinity;
  EXPECT_THAT(quantise_nvfp4(values, 2, 32).error().message,
              ::testing::HasSubstr("row 1, column 5 is inf"));
}

// ---- Scale layouts ----

// ---- MXFP4 ----

TEST(Mxfp4, ScalesFollowTheOcpRule) {
  const auto scale_of = [](float largest) {
    std::vector<float> values(32, 0.0f);
    values[7] = largest;
    return quantise_mxfp4(values, 1, 32).value().scales[0];
  };
  EXPECT_EQ(scale_of(4.0f), 127);
  EXPECT_EQ(scale_of(-7.99f), 127);
  EXPECT_EQ(scale_of(8.0f), 128);
  EXPECT_EQ(scale_of(1.0f), 125);
  EXPECT_EQ(scale_of(0.0f), 0);
  EXPECT_EQ(scale_of(0x1p-149f), 0) << "no scale is below 2^-127";
}

TEST(Mxfp4, QuantisesByDefinition) {
  Random random(3);
  std::vector<float> values(3 * 70);
  for (float& value : values) value = 5 * random.normal();
  const Mxfp4Matrix matrix = quantise_mxfp4(values, 3, 70).value();
  ASSERT_EQ(matrix.scales.size(), 3u * 3) << "the last block of a row is short";
  for (int64_t row = 0; row < 3; ++row) {
    std::vector<float> plain(70);
    dequantise_mxfp4_row(matrix.codes.data() + row * 35, matrix.scales.data() + row * 3, plain);
    for (int64_t i = 0; i < 70; ++i) {
      const float scale = ue8m0_to_float(matrix.scales[static_cast<size_t>(row * 3 + i / 32)]);
      const float value = values[static_cast<size_t>(row * 70 + i)];
      EXPECT_EQ(plain[static_cast<size_t>(i)], kE2M1Values[float_to_e2m1(value / scale)] * scale);
    }
  }
  EXPECT_FALSE(quantise_mxfp4(values, 6, 35).ok());
  values[5] = kInfinity;
  EXPECT_THAT(quantise_mxfp4(values, 3, 70).error().message, HasSubstr("row 0, column 5"));
}

// ---- FP8 ----

TEST(Fp8, TheLargestValueBecomes448) {
  std::vector<float> values = {0.5f, -3.0f, 0.0f, 1.5f};
  std::vector<uint8_t> codes(4);
  const float scale = quantise_fp8(values, codes.data());
  EXPECT_EQ(scale, 3.0f / 448);
  EXPECT_EQ(codes[1], 0xFE);
  EXPECT_EQ(codes[2], 0);
  EXPECT_EQ(codes[0], float_to_e4m3(0.5f / scale));
  std::fill(values.begin(), values.end(), 0.0f);
  EXPECT_EQ(quantise_fp8(values, codes.data()), 1) << "scale of zeros";
  values[2] = kInfinity;
  EXPECT_TRUE(std::isnan(quantise_fp8(values, codes.data())));
}

TEST(Fp8, EachBlockOf128x128HasItsScale) {
  const int64_t rows = 200, k = 300;
  std::vector<float> values(static_cast<size_t>(rows * k));
  Random random(5);
  for (float& value : values) value = random.normal();
  const Fp8BlockMatrix matrix = quantise_fp8_block(values, rows, k).value();
  ASSERT_EQ(matrix.scales.size(), 2u * 3);
  for (int64_t block = 0; block < 6; ++block) {
    float largest = 0;
    for (int64_t row = block / 3 * 128; row < std::min(rows, block / 3 * 128 + 128); ++row) {
      for (int64_t col = block % 3 * 128; col < std::min(k, block % 3 * 128 + 128); ++col) {
        const auto at = static_cast<size_t>(row * k + col);
        const float scale = matrix.scales[static_cast<size_t>(block)];
        largest = std::max(largest, std::abs(values[at]));
        EXPECT_EQ(matrix.codes[at], float_to_e4m3(values[at] / scale));
      }
    }
    EXPECT_EQ(matrix.scales[static_cast<size_t>(block)], largest / 448);
  }
  EXPECT_FALSE(quantise_fp8_block(values, 200, 301).ok());
}

TEST(ScaleLayout, PublishedVectorsOf128x4) {
  constexpr int64_t kBlocks = 37;
  const std::vector<std::array<int64_t, 3>> vectors = {{0, 0, 0},   {1, 0, 16},     {32, 0, 4},
                                                       {64, 1, 9},  {96, 0, 12},    {127, 3, 511},
                                                       {0, 4, 512}, {128, 0, 5120}, {130, 9, 6177}};
  for (const auto& [m, k, offset] : vectors)
    EXPECT_EQ(scale_offset_128x4(m, k, kBlocks), offset) << m << "," << k;
}

TEST(ScaleLayout, EveryOffsetIsUsedOnceAndFits) {
  for (int64_t rows : {1, 8, 127, 128, 130}) {
    for (int64_t blocks : {1, 4, 37}) {
      std::set<int64_t> big, small, linear;
      for (int64_t m = 0; m < rows; ++m) {
        for (int64_t k = 0; k < blocks; ++k) {
          big.insert(scale_offset_128x4(m, k, blocks));
          small.insert(scale_offset_8x4(m, k, blocks));
          linear.insert(scale_offset_linear(m, k, blocks));
        }
      }
      const auto count = static_cast<size_t>(rows * blocks);
      EXPECT_EQ(big.size(), count);
      EXPECT_EQ(small.size(), count);
      EXPECT_EQ(linear.size(), count);
      EXPECT_LT(*big.rbegin(), scale_bytes_128x4(rows, blocks));
      EXPECT_LT(*small.rbegin(), scale_bytes_8x4(rows, blocks));
      EXPECT_EQ(*linear.rbegin(), rows * blocks - 1);
    }
  }
}

// formats.md gives the inverse as a reshape and permutation: position (mt, kt, m32, m4, k4) of
// memory is row mt·128 + m4·32 + m32.
TEST(ScaleLayout, InverseOf128x4) {
  constexpr int64_t kRowTiles = 2;
  constexpr int64_t kBlockTiles = 3;
  int64_t offset = 0;
  for (int64_t mt = 0; mt < kRowTiles; ++mt) {
    for (int64_t kt = 0; kt < kBlockTiles; ++kt) {
      for (int64_t m32 = 0; m32 < 32; ++m32) {
        for (int64_t m4 = 0; m4 < 4; ++m4) {
          for (int64_t k4 = 0; k4 < 4; ++k4) {
            EXPECT_EQ(scale_offset_128x4(mt * 128 + m4 * 32 + m32, kt * 4 + k4, kBlockTiles * 4),
                      offset++);
          }
        }
      }
    }
  }
  EXPECT_EQ(offset, scale_bytes_128x4(kRowTiles * 128, kBlockTiles * 4));
}

TEST(ScaleLayout, ExpertsAreAsFarApartAsTheirPaddedScales) {
  const auto distance = [](int64_t n, int64_t k) { return scale_bytes_128x4(n, nvfp4_blocks(k)); };
  EXPECT_EQ(distance(512, 6144), 512 * 6144 / 16);
  EXPECT_EQ(distance(192, 176), 256 * 192 / 16);  // roundup(192, 128) · roundup(176, 64) / 16
}

TEST(ScaleLayout, ReorderingThereAndBackKeepsEveryScale) {
  const int64_t rows = 139, blocks = 37;
  std::vector<uint8_t> linear(static_cast<size_t>(rows * blocks));
  Random random(9);
  fill_random(random, linear);
  for (ScaleOrder order : {ScaleOrder::k128x4, ScaleOrder::k8x4}) {
    std::vector<uint8_t> swizzled(static_cast<size_t>(scale_bytes(order, rows, blocks)), 0xAA);
    reorder_scales(ScaleOrder::kLinear, linear, order, swizzled, rows, blocks);
    const int64_t row = 130, block = 9;
    const int64_t at = order == ScaleOrder::k128x4 ? 6177 : scale_offset_8x4(row, block, blocks);
    EXPECT_EQ(swizzled[static_cast<size_t>(at)], linear[static_cast<size_t>(row * blocks + block)]);
    std::vector<uint8_t> back(linear.size());
    reorder_scales(order, swizzled, ScaleOrder::kLinear, back, rows, blocks);
    EXPECT_EQ(back, linear);
  }
}

}  // namespace
}  // namespace moetune

// The row kernels of every instruction set, each alone: what the layer's tolerance would hide.
#include "cpu/kernels/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/isa.h"
#include "cpu/layer_case.h"

namespace moetune::cpu {
namespace {

class Kernels : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam()))
      GTEST_SKIP() << "this machine has no " << to_string(GetParam())
                   << ": its kernels were not run";
  }
  const KernelTable& table() const { return kernels(GetParam()); }

  uint16_t activate_one(Epilogue kind, float gate, float up) const {
    float c[kPanelRows] = {};
    uint16_t out[kPanelRows] = {};
    c[5] = gate;
    c[kHalfRows + 5] = up;
    table().activate(kind, c, 1, 1.f, 1.f, nullptr, out, kPanelRows);
    return out[5];
  }
};

// `tokens` rows of bf16 values to be packed from column kFirst on.
struct Rows {
  static constexpr int64_t kFirst = 3;
  std::vector<std::vector<uint16_t>> data;

  template <typename Value>
  Rows(int tokens, int64_t values, Value&& value) : data(static_cast<size_t>(tokens)) {
    for (int t = 0; t < tokens; ++t)
      for (int64_t k = -kFirst; k < values; ++k)
        data[static_cast<size_t>(t)].push_back(value(t, k));
  }
  uint16_t at(int token, int64_t k) const {
    const auto& row = data[static_cast<size_t>(token)];
    const auto column = static_cast<size_t>(kFirst + k);
    return column < row.size() ? row[column] : uint16_t{0};
  }
  // Items of all tokens side by side.
  std::vector<uint32_t> packed(const FormatKernels& kernels) const {
    const auto values = static_cast<int64_t>(data[0].size()) - kFirst;
    const int64_t items = (values + kBlock - 1) / kBlock * kernels.x_block_items;
    std::vector<const uint16_t*> rows;
    for (const auto& row : data) rows.push_back(row.data());
    std::vector<uint32_t> out(static_cast<size_t>(items) * rows.size() + 4, 0xDDDDDDDD);
    kernels.pack_x(rows.data(), static_cast<int>(rows.size()), kFirst, values, out.data());
    EXPECT_EQ(out.back(), 0xDDDDDDDD) << "more than 3 items past the end";
    out.resize(out.size() - 4);
    return out;
  }
};

TEST_P(Kernels, PackedActivationsAreTokensSideBySide) {
  const FormatKernels& kernels = *table().bf16;
  const bool pairs = kernels.arithmetic == Arithmetic::kBf16Pairs;
  for (int tokens = 1; tokens <= table().max_tile; ++tokens)
    for (const int64_t values : {1, 2, 15, 16, 17, 40, 63}) {
      const Rows rows(tokens, values,
                      [](int t, int64_t k) { return static_cast<uint16_t>(100 * t + k + 4); });
      const std::vector<uint32_t> out = rows.packed(kernels);
      for (size_t at = 0; at < out.size(); ++at) {
        const int t = static_cast<int>(at) % tokens;
        const int64_t i = static_cast<int64_t>(at) / tokens;
        const uint32_t expected = pairs ? rows.at(t, 2 * i) | uint32_t{rows.at(t, 2 * i + 1)} << 16
                                        : uint32_t{rows.at(t, i)} << 16;
        ASSERT_EQ(out[at], expected) << tokens << " tokens, item " << i;
      }
    }
}

// What fixed-point numbers are worth.
class FixedPoint {
 public:
  FixedPoint(const Rows& rows, const FormatKernels& kernels)
      : tokens_(rows.data.size()), items_(rows.packed(kernels)) {}

  float scale(int64_t block, int token) const {
    return std::bit_cast<float>(item(block, kBlock / 2, token));
  }
  // The kernels' scales and codes leave a factor of 2 to the activations.
  double value(int token, int64_t k) const {
    const uint32_t pair = item(k / kBlock, k % kBlock / 2, token);
    const auto units = static_cast<int16_t>(k % 2 == 0 ? pair & 0xFFFF : pair >> 16);
    return 2.0 * units * static_cast<double>(scale(k / kBlock, token));
  }

 private:
  uint32_t item(int64_t block, int64_t i, int token) const {
    return items_[static_cast<size_t>(block * (kBlock / 2 + 1) + i) * tokens_ +
                  static_cast<size_t>(token)];
  }
  size_t tokens_;
  std::vector<uint32_t> items_;
};

class FixedPointKernels : public Kernels {
 protected:
  void SetUp() override {
    Kernels::SetUp();
    if (!IsSkipped() && table().nvfp4->arithmetic != Arithmetic::kInt16Pairs)
      GTEST_SKIP() << to_string(GetParam()) << " kernels multiply no integers";
  }
};

TEST_P(FixedPointKernels, KeepEveryActivationToAShareOfItsBlocksLargest) {
  std::mt19937 random(5);
  for (int tokens = 1; tokens <= table().max_tile; ++tokens)
    for (const int64_t values : {1, 2, 15, 16, 17, 40, 63, 160}) {
      const Rows rows(tokens, values, [&](int t, int64_t) {
        // Exponents from one to many binades, near 1 and near the largest.
        const uint32_t exponent = (t % 3 == 2 ? 0xFE : 0x80) - random() % (1u << (t + 1) % 6);
        return static_cast<uint16_t>(random() % 2 << 15 | exponent << 7 | random() % 128);
      });
      const FixedPoint fixed(rows, *table().nvfp4);
      for (int t = 0; t < tokens; ++t)
        for (int64_t k = 0; k < (values + kBlock - 1) / kBlock * kBlock; ++k) {
          int largest = 0;
          for (int64_t i = 0; i < kBlock; ++i)
            largest = std::max(largest, rows.at(t, k / kBlock * kBlock + i) >> 7 & 0xFF);
          const double exact = from_bf16(rows.at(t, k));
          const double unit = std::ldexp(1.0, largest - 127 - 14);
          const bool whole = (rows.at(t, k) >> 7 & 0xFF) >= largest - 7;
          ASSERT_LE(std::abs(fixed.value(t, k) - exact), whole ? 0 : unit / 2)
              << tokens << " tokens, token " << t << ", k " << k << " of " << values;
        }
    }
}

TEST_P(FixedPointKernels, TakeZerosAndWhatIsNextToZero) {
  for (const uint16_t value : {0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x1234}) {
    const Rows rows(2, 32, [value](int t, int64_t) { return t == 0 ? value : uint16_t{0x3F80}; });
    const FixedPoint fixed(rows, *table().nvfp4);
    for (int64_t k = 0; k < 32; ++k) {
      ASSERT_NEAR(fixed.value(0, k), from_bf16(value), 0x1p-102) << value;
      ASSERT_EQ(fixed.value(1, k), 1.0);
    }
    EXPECT_TRUE(std::isnormal(fixed.scale(0, 0)) && std::isnormal(fixed.scale(1, 0) * 0x1p-9f));
  }
}

TEST_P(FixedPointKernels, MarkBlocksWithWhatIsNotFinite) {
  for (const uint16_t bad : {0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF})
    for (int tokens = 1; tokens <= table().max_tile; ++tokens)
      for (int64_t where = 0; where < 41; ++where) {
        const int victim = static_cast<int>(where) % tokens;
        const Rows rows(tokens, 41, [&](int t, int64_t k) {
          return t == victim && k == where ? bad : static_cast<uint16_t>(0x3F80 + k);
        });
        const FixedPoint fixed(rows, *table().nvfp4);
        for (int t = 0; t < tokens; ++t)
          for (int64_t block = 0; block < 3; ++block)
            ASSERT_EQ(std::isfinite(fixed.scale(block, t)), t != victim || block != where / kBlock)
                << "token " << t << " block " << block;
      }
}

TEST_P(Kernels, SwiGluIsRightToTheLastBitOfBf16) {
  int worse = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto gate = static_cast<float>((i - 2000) * 0.0437);
    const auto up = static_cast<float>(1 + i % 7 * 0.125);
    const double exact =
        static_cast<double>(gate) / (1 + std::exp(-static_cast<double>(gate))) * up;
    const uint16_t expected = to_bf16(exact);
    const uint16_t actual = activate_one(Epilogue::kSwiGlu, gate, up);
    // The f32 result is good to a few units, so bf16 differs only where the exact one is nearly a
    // tie.
    if (actual != expected) ++worse;
    ASSERT_LE(std::abs(static_cast<int>(actual) - static_cast<int>(expected)), 1)
        << gate << " " << up;
  }
  EXPECT_LE(worse, 2);
}

TEST_P(Kernels, SwiGluGoesToItsLimits) {
  EXPECT_EQ(activate_one(Epilogue::kSwiGlu, 1000.f, 2.f), to_bf16(2000));
  EXPECT_EQ(from_bf16(activate_one(Epilogue::kSwiGlu, -1000.f, 2.f)), 0.f);
  EXPECT_TRUE(std::isnan(from_bf16(activate_one(Epilogue::kSwiGlu, std::nanf(""), 1.f))));
  EXPECT_TRUE(std::isnan(from_bf16(activate_one(Epilogue::kSwiGlu, 1.f, std::nanf("")))));
  EXPECT_EQ(activate_one(Epilogue::kSwiGlu, std::numeric_limits<float>::infinity(), 1.f), 0x7F80);
}

TEST_P(Kernels, ClampedSwiGluClampsBothSidesAsDefined) {
  const auto expected = [](double gate, double up) {
    const double g = std::min(gate, 7.0);
    return to_bf16(g / (1 + std::exp(-1.702 * g)) * (std::clamp(up, -7.0, 7.0) + 1));
  };
  for (const float gate : {-20.f, -1.5f, 0.f, 3.f, 7.f, 100.f})
    for (const float up : {-100.f, -7.f, -1.f, 0.5f, 7.f, 100.f})
      EXPECT_NEAR(from_bf16(activate_one(Epilogue::kSwiGluClamped, gate, up)),
                  from_bf16(expected(gate, up)), std::abs(from_bf16(expected(gate, up))) / 250)
          << gate << " " << up;
}

TEST_P(Kernels, Bf16RoundsToNearestTiesToEven) {
  for (const auto& [value, bits] :
       std::vector<std::pair<float, uint16_t>>{{1 + 0x1p-8f, 0x3F80},
                                               {1 + 3 * 0x1p-8f, 0x3F82},
                                               {1 + 0x1p-8f + 0x1p-20f, 0x3F81},
                                               {-1 - 3 * 0x1p-8f, 0xBF82},
                                               {0x1.FFp127f, 0x7F80},
                                               {0x1p-133f, 0x0001}})
    EXPECT_EQ(activate_one(Epilogue::kGatePlusUp, value, 0.f), bits) << value;
  EXPECT_EQ(from_bf16(activate_one(Epilogue::kRelu2, -3.f, 0.f)), 0.f);
  EXPECT_EQ(from_bf16(activate_one(Epilogue::kRelu2, 3.f, 0.f)), 9.f);
}

TEST_P(Kernels, BiasesAreOfRowsAndComeAfterScales) {
  float c[2 * kPanelRows], bias[kPanelRows];
  for (int i = 0; i < 2 * kPanelRows; ++i) c[i] = static_cast<float>(i + 1);
  for (int i = 0; i < kPanelRows; ++i) bias[i] = static_cast<float>(100 - 3 * i);
  uint16_t h[2 * kPanelRows];
  table().activate(Epilogue::kGatePlusUp, c, 2, 2.f, 4.f, bias, h, kPanelRows);
  for (int t = 0; t < 2; ++t)
    for (int i = 0; i < kHalfRows; ++i) {
      const int gate = t * kPanelRows + i, up = gate + kHalfRows;
      ASSERT_EQ(h[gate], to_bf16(2 * c[gate] + bias[i] + 4 * c[up] + bias[i + kHalfRows]));
    }
  table().activate(Epilogue::kRelu2, c, 2, 2.f, 2.f, bias, h, kPanelRows);
  for (int i = 0; i < 2 * kPanelRows; ++i)
    ASSERT_EQ(h[i], to_bf16(std::pow(2 * c[i] + bias[i % kPanelRows], 2)));
  const int32_t rows[2] = {1, 0};
  float y[2 * kPanelRows];
  table().store(c, 2, 0.5f, bias, rows, y, kPanelRows);
  for (int i = 0; i < 2 * kPanelRows; ++i)
    ASSERT_EQ(y[(i + kPanelRows) % (2 * kPanelRows)], 0.5f * c[i] + bias[i % kPanelRows]);
}

TEST_P(Kernels, CombineSumsInTheOrderOfSlots) {
  // Cancellation shows the order: (1 + 2^25) - 2^25 is 0 in f32, (2^25 - 2^25) + 1 is 1.
  constexpr int64_t kStride = 64;
  std::vector<float> y(4 * kStride, 1.f);
  const int32_t ids[4] = {3, -1, 0, 0};
  const float weights[4] = {1.f, 1e30f, 0x1p25f, -0x1p25f};
  for (const int64_t columns : {1, 3, 8, 17, 64}) {
    std::vector<float> out(static_cast<size_t>(columns) + 1, 77.f);
    const CombineArgs args{y.data(), kStride, ids, weights, 4, columns};
    table().combine_f32(&args, out.data());
    for (int64_t i = 0; i < columns; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], 0.f);
    ASSERT_EQ(out.back(), 77.f);
  }
}

TEST_P(Kernels, TheReadLoopReadsEveryLine) {
  Buffer buffer = Buffer::allocate(4096).value();
  const uint64_t empty = table().read(buffer.data(), buffer.bytes());
  for (size_t line = 0; line < buffer.bytes(); line += 64) {
    buffer.data()[line + line / 64 % 64] = 1;
    EXPECT_NE(table().read(buffer.data(), buffer.bytes()), empty) << "line at " << line;
    buffer.data()[line + line / 64 % 64] = 0;
  }
}

const auto kEvery = ::testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16);
std::string isa_name(const ::testing::TestParamInfo<Isa>& instance) {
  return to_string(instance.param);
}
INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Kernels, kEvery, isa_name);
INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, FixedPointKernels, kEvery, isa_name);

}  // namespace
}  // namespace moetune::cpu

// The row kernels of every instruction set, each alone: what the layer's tolerance would hide.
#include "cpu/kernels/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/isa.h"
#include "cpu/layer_case.h"

namespace moetune::cpu {
namespace {

class Kernels : public testing::TestWithParam<Isa> {
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
    table().activate(kind, c, 1, 1.f, 1.f, out, kPanelRows);
    return out[5];
  }
};

TEST_P(Kernels, PackedActivationsAreTokensSideBySide) {
  const int per_item = table().values_per_item;
  for (int tokens = 1; tokens <= table().max_tile; ++tokens)
    for (const int64_t values : {1, 2, 15, 16, 17, 40, 63}) {
      std::vector<std::vector<uint16_t>> data(static_cast<size_t>(tokens));
      std::vector<const uint16_t*> rows;
      for (int t = 0; t < tokens; ++t) {
        for (int64_t k = 0; k < 3 + values; ++k)
          data[static_cast<size_t>(t)].push_back(static_cast<uint16_t>(100 * t + k + 1));
        rows.push_back(data[static_cast<size_t>(t)].data());
      }
      const int64_t items = (values + 15) / 16 * 16 / per_item;
      std::vector<uint32_t> out(static_cast<size_t>(items * tokens + 4), 0xDDDDDDDD);
      table().pack_x(rows.data(), tokens, 3, values, out.data());
      const auto value = [&](int t, int64_t k) -> uint32_t {
        return k < values ? data[static_cast<size_t>(t)][static_cast<size_t>(3 + k)] : 0;
      };
      for (int64_t i = 0; i < items; ++i)
        for (int t = 0; t < tokens; ++t) {
          const uint32_t expected =
              per_item == 1 ? value(t, i) << 16 : value(t, 2 * i) | value(t, 2 * i + 1) << 16;
          ASSERT_EQ(out[static_cast<size_t>(i * tokens + t)], expected)
              << tokens << " tokens, item " << i;
        }
      ASSERT_EQ(out.back(), 0xDDDDDDDD) << "more than 3 items past the end";
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

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Kernels,
                         testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                         Isa::kAvx512Bf16),
                         [](const auto& instance) {
                           return std::string(to_string(instance.param));
                         });

}  // namespace
}  // namespace moetune::cpu

// Every code of every format, through the tiles of every instruction set: what a kernel makes of a
// weight shows where one activation is 1 and all others are 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "base/f16.h"
#include "base/integers.h"
#include "cpu/buffer.h"
#include "cpu/isa.h"
#include "cpu/panel_stream.h"
#include "cpu/tactic.h"
#include "ops/moe/format.h"
#include "ops/moe/number_formats.h"

namespace moetune::cpu {
namespace {

// One panel of 32 rows of k values in checkpoint order.
struct RawPanel {
  WeightFormat format;
  int64_t k;
  std::vector<uint8_t> values, scales;

  RawPanel(WeightFormat of, int64_t values_of_k) : format(of), k(values_of_k) {
    values.resize(static_cast<size_t>(kPanelRows * row_bytes(format, k)));
    scales.resize(static_cast<size_t>(kPanelRows * scale_bytes()));
  }
  int64_t scale_bytes() const {
    const FormatParts parts = format_parts(format);
    return parts.scales ? ceil_div(k, parts.block_k) * bits_per_value(*parts.scales) / 8 : 0;
  }
  PanelRows<const uint8_t> rows() const {
    PanelRows<const uint8_t> rows;
    for (int row = 0; row < kPanelRows; ++row) {
      rows.values[row] = values.data() + row * row_bytes(format, k);
      if (!scales.empty()) rows.scales[row] = scales.data() + row * scale_bytes();
    }
    return rows;
  }
};

class Decoding : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam()))
      GTEST_SKIP() << "this machine has no " << to_string(GetParam())
                   << ": its kernels were not run";
  }

  // Compares direct and staged tiles with `expected` of a row and a k.
  void check(const RawPanel& raw, const std::function<float(int, int64_t)>& expected) const {
    const int64_t blocks = ceil_div(raw.k, kBlock);
    Buffer stream = Buffer::allocate(static_cast<size_t>(panel_bytes(raw.format, blocks))).value();
    ASSERT_TRUE(pack_panel(raw.format, raw.rows(), raw.k, stream.data()).ok());
    for (int64_t k = 0; k < raw.k; ++k)
      for (const bool staged : {false, true}) {
        const std::vector<float> c = weights_at(raw.format, stream.data(), raw.k, k, staged);
        for (int row = 0; row < static_cast<int>(c.size()); ++row)
          ASSERT_EQ(c[static_cast<size_t>(row)], expected(row, k))
              << to_string(raw.format) << (staged ? " staged" : " direct") << ", row " << row
              << ", k " << k;
      }
  }

 private:
  // Empty where nothing is staged.
  std::vector<float> weights_at(WeightFormat format, const uint8_t* stream, int64_t values,
                                int64_t k, bool staged) const {
    const KernelTable& table = kernels(GetParam());
    const FormatKernels& own = format_kernels(table, format);
    if (staged && own.stage == nullptr) return {};
    const int blocks = static_cast<int>(ceil_div(values, kBlock));
    std::vector<uint16_t> hidden(static_cast<size_t>(values));
    hidden[static_cast<size_t>(k)] = 0x3F80;
    const uint16_t* row = hidden.data();
    std::vector<uint32_t> x(static_cast<size_t>(blocks * own.x_block_items) + 4);
    own.pack_x(&row, 1, 0, values, x.data());
    std::vector<float> c(kPanelRows);
    TileArgs args{stream, x.data(), c.data(), 1, blocks, 0, 0, 0};
    if (!staged) {
      own.tile(&args);
      return c;
    }
    const int64_t items = round_up(blocks, kStepBlocks) * own.staged_block_items;
    Buffer scratch = Buffer::allocate(static_cast<size_t>(4 * items)).value();
    args.weights = scratch.data();
    for (args.group = 0; args.group < table.stage_groups; ++args.group) {
      const StageArgs stage{stream, reinterpret_cast<uint32_t*>(scratch.data()), blocks, 0,
                            args.group};
      own.stage(&stage);
      own.tile_staged(&args);
    }
    return c;
  }
};

TEST_P(Decoding, IsExactForEveryE4m3) {
  // Two groups, the second one short, under scales of their own.
  RawPanel raw(WeightFormat::kFp8Block, 128 + 17);
  for (size_t i = 0; i < raw.values.size(); ++i) {
    const auto code = static_cast<uint8_t>(i * 7);
    raw.values[i] = (code & 0x7F) == 0x7F ? uint8_t{0} : code;
  }
  const auto scale = [](int row, int64_t k) {
    return std::ldexp(1.5f, (row < kHalfRows ? 3 : -5) + (k < 128 ? 0 : 7));
  };
  for (int row = 0; row < kPanelRows; ++row)
    for (int64_t block = 0; block < 2; ++block)
      reinterpret_cast<float*>(raw.scales.data())[row * 2 + block] = scale(row, block * 128);
  const auto code = [&raw](int row, int64_t k) {
    return e4m3_to_float(raw.values[static_cast<size_t>(row * raw.k + k)]);
  };
  check(raw, [&](int row, int64_t k) { return code(row, k) * scale(row, k); });
  raw.format = WeightFormat::kFp8;
  raw.scales.clear();
  check(raw, code);
}

TEST_P(Decoding, IsExactForEveryF16) {
  constexpr int64_t kDepth = 32;
  for (size_t first = 0; first < 1 << 16; first += kPanelRows * kDepth) {
    RawPanel raw(WeightFormat::kFp16, kDepth);
    auto* halves = reinterpret_cast<uint16_t*>(raw.values.data());
    for (size_t i = 0; i < kPanelRows * kDepth; ++i) {
      const auto bits = static_cast<uint16_t>(first + i);
      halves[i] = (bits & 0x7C00) == 0x7C00 ? uint16_t{0} : bits;  // Finite.
    }
    check(raw, [halves](int row, int64_t k) { return f16_to_float(halves[row * kDepth + k]); });
  }
}

TEST_P(Decoding, IsExactForEveryFp4CodeUnderEveryScale) {
  for (const WeightFormat format : {WeightFormat::kNvfp4, WeightFormat::kMxfp4}) {
    const bool nvfp4 = format == WeightFormat::kNvfp4;
    const int64_t block_k = format_parts(format).block_k;
    const auto to_float = nvfp4 ? e4m3_to_float : ue8m0_to_float;
    // Two groups, the second one short; within one row neighbouring scales differ.
    RawPanel raw(format, 5 * block_k + 2);
    // mxfp4: from 2^-100 to 2^100, within what products with activations of 1 leave in f32.
    const uint8_t least = nvfp4 ? 0 : 27, most = nvfp4 ? 0x7E : 227;
    for (uint8_t shift = 0; shift <= most - least; shift = static_cast<uint8_t>(shift + 40)) {
      for (size_t i = 0; i < raw.values.size(); ++i) raw.values[i] = static_cast<uint8_t>(i * 5);
      for (size_t i = 0; i < raw.scales.size(); ++i)
        raw.scales[i] = static_cast<uint8_t>(least + (i + shift) % (most - least + 1u));
      check(raw, [&](int row, int64_t k) {
        const uint8_t* codes = raw.values.data() + row * raw.k / 2;
        const float scale =
            to_float(raw.scales[static_cast<size_t>(row * raw.scale_bytes() + k / block_k)]);
        return kE2M1Values[packed_e2m1(codes, k)] * scale;
      });
    }
  }
}

TEST_P(Decoding, TakesTheSmallestPowersOfTwoForZeroAndNoOthers) {
  RawPanel raw(WeightFormat::kMxfp4, 32);
  std::fill(raw.values.begin(), raw.values.end(), uint8_t{0x22});  // 1
  for (int row = 0; row < kPanelRows; ++row) raw.scales[static_cast<size_t>(row)] = row;
  check(raw, [](int row, int64_t) {
    return row <= 8 ? 0.f : ue8m0_to_float(static_cast<uint8_t>(row));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Decoding,
                         ::testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                           Isa::kAvx512Bf16),
                         [](const auto& instance) {
                           return std::string(to_string(instance.param));
                         });

}  // namespace
}  // namespace moetune::cpu

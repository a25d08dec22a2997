// The whole layer against its definition, for every instruction set of this machine.
#include "cpu/layer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "cpu/isa.h"
#include "cpu/layer_case.h"
#include "ops/moe/format.h"

namespace moetune::cpu {
namespace {

constexpr Isa kAll[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

ThreadPool& pool_of(int threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  auto& pool = pools[threads];
  if (!pool)
    pool = std::make_unique<ThreadPool>(std::vector<int>(static_cast<size_t>(threads), -1));
  return *pool;
}

// Tactics that between them have every value of every parameter, and every tile size.
std::vector<LayerTactic> tactics(const KernelTable& kernels, WeightFormat format) {
  std::vector<LayerTactic> all;
  const int k_blocks[] = {0, 128, 256};
  const int panels[] = {1, 3, 8};
  for (int tile = 1; tile <= kernels.max_tile; ++tile)
    for (const Feed feed : {Feed::kDirect, Feed::kStaged}) {
      if (feed == Feed::kStaged && format_kernels(kernels, format).stage == nullptr) continue;
      const auto i = static_cast<int>(all.size());
      StageTactic gemm1{feed, tile, panels[i % 3], k_blocks[i / 2 % 3], i % 3 * 512};
      StageTactic gemm2{feed, kernels.max_tile + 1 - tile, panels[(i + 1) % 3], k_blocks[i % 3],
                        1024};
      all.push_back({gemm1, gemm2});
    }
  return all;
}

double relative_rms(const std::vector<float>& expected, const float* actual) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double wanted = expected[i];
    error += (wanted - actual[i]) * (wanted - actual[i]);
    norm += wanted * wanted;
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

// h is rounded to bf16 once, and a sum that differs in its last bits can fall to the other side
// there: 1 ulp of bf16 in a few of the values. Fixed-point sums differ in more of their bits, and
// in a short row one large value of h may be a tenth of the whole.
double tolerance(const FormatKernels& kernels) {
  return kernels.arithmetic == Arithmetic::kInt16Pairs ? 2e-3 : 4e-4;
}

class Layer : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam()))
      GTEST_SKIP() << "this machine has no " << to_string(GetParam())
                   << ": its kernels were not run";
  }
  const KernelTable& table() const { return kernels(GetParam()); }

  // Runs the first T tokens for several T with varying tactics, and compares some of them.
  void check_close(const FusedMoeSpec& spec, std::initializer_list<int64_t> counts) {
    const int64_t most = std::max(counts);
    LayerCase layer(spec, most, DataKind::kRealistic,
                    static_cast<uint32_t>(spec.hidden * 131 + spec.intermediate));
    std::vector<int64_t> sampled;
    for (const int64_t token : {0, 1, 2, 6, 15, 32, 63, 64, 128})
      if (token < most) sampled.push_back(token);
    const std::vector<std::vector<float>> expected = layer.reference(sampled);
    size_t turn = 0;
    const std::vector<LayerTactic> all = tactics(table(), spec.weights);
    for (const int64_t tokens : counts) {
      const LayerTactic& tactic = all[turn++ * 5 % all.size()];
      const std::vector<float> output = run_f32(layer, tokens, tactic, table(), pool_of(2));
      for (size_t i = 0; i < sampled.size() && sampled[i] < tokens; ++i) {
        const int64_t token = sampled[i];
        EXPECT_LT(relative_rms(expected[i], output.data() + token * spec.hidden),
                  tolerance(format_kernels(table(), spec.weights)))
            << to_string(spec.weights) << ", token " << token << " of " << tokens << ", hidden "
            << spec.hidden << ", intermediate " << spec.intermediate << ", gemm1 "
            << to_string(tactic.gemm1) << ", gemm2 " << to_string(tactic.gemm2);
      }
    }
  }
};

TEST_P(Layer, IsRightOnAwkwardSizes) {
  for (const WeightFormat format : kEveryFormat) {
    check_close(small_spec(2880, 96, 4, 2, format, Activation::kSwiGlu),
                {1, 2, 3, 7, 16, 33, 64, 129});
    check_close(small_spec(192, 1408, 5, 3, format, Activation::kSwiGlu), {1, 7, 33, 129});
    check_close(small_spec(1856, 176, 3, 2, format, Activation::kSwiGlu), {2, 16, 64});
    check_close(small_spec(352, 2688, 3, 1, format, Activation::kSwiGlu), {1, 3, 33});
  }
}

TEST_P(Layer, IsRightOnTinySizes) {
  for (const WeightFormat format : kEveryFormat)
    for (int64_t size = 1; size <= 40; ++size) {
      const int64_t unit = bits_per_value(format_parts(format).values) == 4 ? 2 : 1;
      check_close(small_spec(unit * size, unit * (41 - size), 3, 2, format, Activation::kSwiGlu),
                  {5});
    }
}

TEST_P(Layer, IsRightWithEveryActivation) {
  for (const WeightFormat format : kEveryFormat)
    for (const Activation activation : {Activation::kSwiGlu, Activation::kSwiGluClamped,
                                        Activation::kRelu2, Activation::kGatePlusUp}) {
      check_close(small_spec(160, 80, 4, 3, format, activation), {1, 16, 33});
      check_close(with_bias(small_spec(150, 90, 4, 3, format, activation)), {1, 16, 33});
    }
}

// Every product and sum is exact in f32, so any wrong element shows in any bit. Short blocks of
// every format, in k and in rows.
TEST_P(Layer, IsExactWithEveryTacticWhereArithmeticIs) {
  constexpr int64_t kTokens = 50, kHidden = 336;
  for (const WeightFormat format : kEveryFormat)
    for (const Activation activation : {Activation::kGatePlusUp, Activation::kRelu2}) {
      FusedMoeSpec spec = small_spec(kHidden, 176, 4, 3, format, activation);
      spec.bias = activation == Activation::kGatePlusUp;
      LayerCase layer(spec, kTokens, DataKind::kExact, 7);
      std::vector<int64_t> tokens;
      for (int64_t token = 0; token < kTokens; ++token) tokens.push_back(token);
      const std::vector<std::vector<float>> expected = layer.reference(tokens);
      for (const LayerTactic& tactic : tactics(table(), format)) {
        const std::vector<float> output = run_f32(layer, kTokens, tactic, table(), pool_of(2));
        for (size_t i = 0; i < output.size(); ++i)
          ASSERT_EQ(output[i], expected[i / kHidden][i % kHidden])
              << to_string(format) << ", token " << i / kHidden << " column " << i % kHidden
              << " gemm1 " << to_string(tactic.gemm1) << " gemm2 " << to_string(tactic.gemm2);
      }
    }
}

// Also under the thread sanitizer.
class LayerThreads : public Layer {};

TEST_P(LayerThreads, AnyNumberGivesTheSameBits) {
  for (const WeightFormat format : kEveryFormat) {
    LayerCase layer(small_spec(320, 208, 6, 3, format, Activation::kSwiGlu), 70,
                    DataKind::kRealistic, 11);
    for (const LayerTactic& tactic : tactics(table(), format)) {
      const std::vector<float> once = run_f32(layer, 70, tactic, table(), pool_of(1));
      for (const int threads : {2, 4, 4})
        ASSERT_EQ(once, run_f32(layer, 70, tactic, table(), pool_of(threads)))
            << to_string(tactic.gemm1);
    }
  }
}

TEST_P(Layer, KeepsWhatIsNotFiniteToItsToken) {
  constexpr int64_t kTokens = 14;
  constexpr uint16_t kBad[] = {0x7F80, 0xFF80, 0x7FC0};  // Both infinities, NaN.
  for (const WeightFormat format : kEveryFormat)
    for (const Activation activation : {Activation::kSwiGlu, Activation::kSwiGluClamped,
                                        Activation::kRelu2, Activation::kGatePlusUp}) {
      const FusedMoeSpec spec = small_spec(200, 96, 4, 3, format, activation);
      LayerCase clean(spec, kTokens, DataKind::kRealistic, 23);
      LayerCase layer(spec, kTokens, DataKind::kRealistic, 23);
      for (int64_t i = 0; i < 3; ++i) {
        layer.ids()[static_cast<size_t>((3 + 4 * i) * spec.top_k)] = 1;
        layer.hidden()[static_cast<size_t>((3 + 4 * i) * spec.hidden + 99 * i)] = kBad[i];
      }
      clean.ids() = layer.ids();
      for (const LayerTactic& tactic : tactics(table(), format)) {
        const std::vector<float> expected = run_f32(clean, kTokens, tactic, table(), pool_of(2));
        const std::vector<float> output = run_f32(layer, kTokens, tactic, table(), pool_of(2));
        for (size_t i = 0; i < output.size(); ++i) {
          const size_t token = i / static_cast<size_t>(spec.hidden);
          if (token % 4 == 3 && token < 12)
            ASSERT_FALSE(std::isfinite(output[i])) << "token " << token << to_string(tactic.gemm1);
          else
            ASSERT_EQ(output[i], expected[i]) << "token " << token << to_string(tactic.gemm1);
        }
      }
    }
}

TEST_P(Layer, RoundsItsOutputToBf16) {
  LayerCase layer(small_spec(200, 64, 4, 2, WeightFormat::kBf16, Activation::kSwiGlu), 9,
                  DataKind::kRealistic, 5);
  const LayerTactic tactic = tactics(table(), WeightFormat::kBf16).front();
  const std::vector<float> exact = run_f32(layer, 9, tactic, table(), pool_of(2));
  FusedMoeSpec spec = layer.spec();
  spec.output = DataType::kBf16;
  const PanelWeights packed =
      pack_all(spec, *make_random_weights(spec, DataKind::kRealistic, 5).value());
  std::vector<uint16_t> output(exact.size() + 1, 0xBEEF);
  Buffer workspace =
      Buffer::allocate(static_cast<size_t>(workspace_bytes(spec, 9, tactic, table(), 2))).value();
  ASSERT_TRUE(run_layer(packed, layer.inputs(9, output.data()), tactic, table(), pool_of(2),
                        workspace.data()));
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(output[i], to_bf16(exact[i])) << i;
  EXPECT_EQ(output.back(), 0xBEEF) << "written past the end";
}

TEST_P(Layer, SkipsAllSlotsOfATokenAndRunsWithoutAnyRow) {
  LayerCase layer(small_spec(64, 48, 4, 2, WeightFormat::kNvfp4, Activation::kSwiGlu), 6,
                  DataKind::kRealistic, 3);
  std::fill(layer.ids().begin(), layer.ids().end(), -1);
  const LayerTactic tactic = tactics(table(), WeightFormat::kNvfp4).front();
  for (const float value : run_f32(layer, 6, tactic, table(), pool_of(2))) ASSERT_EQ(value, 0.f);
  EXPECT_TRUE(run_f32(layer, 0, tactic, table(), pool_of(2)).empty());
}

TEST_P(Layer, WorksInPassesWithTheSameResult) {
  // 8 slots of 4 KiB rows: 32 MiB of them are 1000 tokens or so.
  const FusedMoeSpec spec = small_spec(1024, 16, 8, 8, WeightFormat::kBf16, Activation::kSwiGlu);
  LayerCase layer(spec, 2100, DataKind::kRealistic, 17);
  const LayerTactic tactic = tactics(table(), WeightFormat::kBf16).back();
  const int64_t one = workspace_bytes(spec, 1000, tactic, table(), 2);
  EXPECT_LT(workspace_bytes(spec, 2100, tactic, table(), 2), one + one / 4);
  const std::vector<float> output = run_f32(layer, 2100, tactic, table(), pool_of(2));
  const std::vector<int64_t> tokens = {0, 699, 700, 701, 1399, 1400, 2099};
  const std::vector<std::vector<float>> expected = layer.reference(tokens);
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_LT(relative_rms(expected[i], output.data() + tokens[i] * spec.hidden),
              tolerance(*table().bf16))
        << tokens[i];
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Layer, ::testing::ValuesIn(kAll),
                         [](const auto& instance) {
                           return std::string(to_string(instance.param));
                         });

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, LayerThreads, ::testing::ValuesIn(kAll),
                         [](const auto& instance) {
                           return std::string(to_string(instance.param));
                         });

TEST(Workspace, OfMoreTokensServesFewerToo) {
  const FusedMoeSpec spec =
      small_spec(2048, 768, 128, 8, WeightFormat::kNvfp4, Activation::kSwiGlu);
  const LayerTactic tactic{};
  int64_t before = 0;
  for (int64_t tokens = 1; tokens <= 3000; ++tokens) {
    const int64_t bytes = workspace_bytes(spec, tokens, tactic, kPortableKernels, 2);
    ASSERT_GE(bytes, before) << tokens << " tokens need less than one fewer";
    before = bytes;
  }
}

TEST(LayerInputs, AnIdThatIsNoExpertIsRefusedBeforeAnythingIsWritten) {
  LayerCase layer(small_spec(64, 48, 4, 2, WeightFormat::kBf16, Activation::kSwiGlu), 3,
                  DataKind::kRealistic, 3);
  const KernelTable& table = kernels(Isa::kPortable);
  for (const int32_t bad : {4, -2, 1 << 30}) {
    layer.ids().back() = bad;
    std::vector<float> output(3 * 64, -5.f);
    const LayerTactic tactic{};
    Buffer workspace =
        Buffer::allocate(static_cast<size_t>(workspace_bytes(layer.spec(), 3, tactic, table, 1)))
            .value();
    const Status status = run_layer(layer.packed(), layer.inputs(3, output.data()), tactic, table,
                                    pool_of(1), workspace.data());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find(std::to_string(bad)), std::string::npos);
    for (const float value : output) ASSERT_EQ(value, -5.f);
  }
}

}  // namespace
}  // namespace moetune::cpu

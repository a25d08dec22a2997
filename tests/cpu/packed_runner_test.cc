// The whole runner, from arguments to output, for every instruction set of this machine: what comes
// before and beside the GEMMs.
#include "cpu/packed_runner.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/bf16.h"

#include "cpu/isa.h"
#include "ops/moe/arguments.h"
#include "ops/moe/number_formats.h"
#include "ops/moe/reference.h"
#include "ops/moe/verify.h"
#include "ops/moe/weights.h"

namespace moetune::cpu {
namespace {

class PackedRunnerTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam()))
      GTEST_SKIP() << "this machine has no " << to_string(GetParam())
                   << ": its kernels were not run";
    setenv("MOETUNE_CPU_ISA", to_string(GetParam()), 1);
    machine_ = open_machine(2).value();
  }
  void TearDown() override { unsetenv("MOETUNE_CPU_ISA"); }

  // What is wrong with the default's output for so many tokens; empty: nothing.
  std::string check(const FusedMoeSpec& spec, DataKind kind, int64_t tokens,
                    const char* workload = "uniform") {
    auto runner = make_packed_runner(spec, machine_).value();
    auto source = make_random_weights(spec, kind, 3).value();
    const auto weights = runner->pack(runner->layout({}), *source).value();
    MoeInputs inputs = make_inputs(spec, parse_workload(workload).value(), tokens, kind, 3, 0,
                                   spec.ep > 1 ? spec.experts : 0)
                           .value();
    std::vector<float> output(static_cast<size_t>(tokens * spec.hidden), -1.0f);
    const Tensors arguments = call_arguments(spec, inputs, output.data());
    const Candidate candidate = runner->default_candidate(tokens);
    std::vector<uint64_t> workspace(runner->workspace_bytes(candidate, tokens) / 8 + 16, ~0ull);
    auto aligned = (reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64;
    const Call call{.arguments = &arguments,
                    .weights = weights.get(),
                    .workspace = reinterpret_cast<void*>(aligned)};
    const auto executable = runner->compile(candidate, tokens).value();
    if (const Status status = executable->run(call); !status.ok()) return status.error().message;
    std::vector<int64_t> rows(static_cast<size_t>(tokens));
    for (int64_t i = 0; i < tokens; ++i) rows[static_cast<size_t>(i)] = i;
    const ReferenceRows right = reference_rows(spec, *source, arguments, rows).value();
    const OutputCheck seen = kind == DataKind::kExact ? compare_exact(right, arguments.back())
                                                      : compare_close(right, arguments.back());
    return seen.verdict.reason;
  }

  std::shared_ptr<Machine> machine_;
};

FusedMoeSpec runner_spec(WeightFormat format) {
  return {.hidden = 288,
          .intermediate = 200,
          .experts = 10,
          .global_experts = 10,
          .top_k = 3,
          .weights = format,
          .output = DataType::kF32};
}

TEST_P(PackedRunnerTest, SharedExpertsAreVisitedByEveryToken) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kMxfp4}) {
    FusedMoeSpec spec = runner_spec(format);
    spec.shared_experts = 2;
    for (const int64_t tokens : {1, 5, 70}) {
      EXPECT_EQ(check(spec, DataKind::kRealistic, tokens), "") << tokens;
      EXPECT_EQ(check(exact_variant(spec), DataKind::kExact, tokens, "zipf:1.2"), "") << tokens;
    }
  }
}

TEST_P(PackedRunnerTest, GivenIdsNeverReachASharedExpert) {
  FusedMoeSpec spec = exact_variant(runner_spec(WeightFormat::kBf16));
  spec.shared_experts = 1;
  auto runner = make_packed_runner(spec, machine_).value();
  auto source = make_random_weights(spec, DataKind::kExact, 3).value();
  const auto weights = runner->pack(runner->layout({}), *source).value();
  MoeInputs inputs =
      make_inputs(spec, parse_workload("uniform").value(), 2, DataKind::kExact, 3, 0).value();
  inputs.routing.ids[1] = 10;
  std::vector<float> output(static_cast<size_t>(2 * spec.hidden));
  const Tensors arguments = call_arguments(spec, inputs, output.data());
  const Candidate candidate = runner->default_candidate(2);
  std::vector<uint64_t> workspace(runner->workspace_bytes(candidate, 2) / 8 + 16);
  auto aligned = (reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64;
  const Call call{.arguments = &arguments,
                  .weights = weights.get(),
                  .workspace = reinterpret_cast<void*>(aligned)};
  EXPECT_FALSE(runner->compile(candidate, 2).value()->run(call).ok());
}

TEST_P(PackedRunnerTest, ActivationsAreRoundedByBlocks) {
  FusedMoeSpec spec = runner_spec(WeightFormat::kFp8Block);
  spec.activations = ActivationFormat::kFp8Block;
  for (const int64_t tokens : {1, 5, 70})
    EXPECT_EQ(check(spec, DataKind::kRealistic, tokens), "") << tokens;
}

TEST_P(PackedRunnerTest, ActivationsAreRoundedUnderGivenScales) {
  FusedMoeSpec spec = runner_spec(WeightFormat::kFp8);
  spec.activations = ActivationFormat::kFp8;
  FusedMoeSpec share = spec;
  share.experts = 5;
  share.ep = 2;
  for (const int64_t tokens : {1, 5, 70}) {
    EXPECT_EQ(check(spec, DataKind::kRealistic, tokens), "") << tokens;
    EXPECT_EQ(check(share, DataKind::kRealistic, tokens), "") << tokens;
  }
}

TEST_P(PackedRunnerTest, SaturatesUnderAGivenScale) {
  const KernelTable& table = kernels(GetParam());
  const std::vector<float> values = {0, 1, -1.06f, 3.4f, -895, 896, 1e6f, -1e30f};
  std::vector<uint16_t> row(values.size()), rounded(values.size());
  std::transform(values.begin(), values.end(), row.begin(), float_to_bf16);
  float scale = 0;
  table.round_row(row.data(), rounded.data(), &scale, 2.0f, static_cast<int64_t>(row.size()));
  EXPECT_EQ(scale, 2.0f);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint8_t code = float_to_e4m3(bf16_to_float(row[i]) / 2);
    EXPECT_EQ(rounded[i], float_to_bf16(e4m3_to_float(code))) << values[i];
  }
}

TEST_P(PackedRunnerTest, RoundsAsTheFormatSays) {
  // Every bf16 pattern that is a number, in rows whose last block is short.
  const KernelTable& table = kernels(GetParam());
  constexpr size_t kColumns = 300;
  std::vector<uint16_t> row(kColumns), rounded(kColumns);
  std::vector<float> scales(3);
  for (uint32_t first = 0; first < 0x7F80; first += 7 * kColumns) {
    for (size_t i = 0; i < kColumns; ++i) {
      const uint32_t pattern = (first + 7 * static_cast<uint32_t>(i)) % 0x7F80;
      row[i] = static_cast<uint16_t>(pattern | (i % 3 == 0 ? 0x8000 : 0));
    }
    table.round_row(row.data(), rounded.data(), scales.data(), 0, kColumns);
    for (size_t begin = 0; begin < kColumns; begin += 128) {
      const size_t count = std::min<size_t>(128, kColumns - begin);
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = bf16_to_float(row[begin + i]);
      std::vector<uint8_t> codes(count);
      const float scale = quantise_fp8(values, codes.data());
      ASSERT_EQ(scales[begin / 128], scale);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(rounded[begin + i], float_to_bf16(e4m3_to_float(codes[i])))
            << values[i] << " under " << scale;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PackedRunnerTest,
                         ::testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                           Isa::kAvx512Bf16),
                         [](const auto& which) { return std::string(to_string(which.param)); });

}  // namespace
}  // namespace moetune::cpu

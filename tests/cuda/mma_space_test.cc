// What cuda.mma offers and how its weights are laid out, as far as no device is needed to know.
#include <gtest/gtest.h>

#include <bitset>

#include "cuda/mma/workspace.h"
#include "mma_cases.h"

namespace moetune::cuda {
namespace {

constexpr int kArchitectures[] = {80, 86, 89, 90, 100, 120};
constexpr int64_t kTokens[] = {1, 2, 3, 4, 7, 16, 33, 64, 129, 257, 1000, 4096, 8192, 20000};

std::vector<MmaCase> all_cases() {
  std::vector<MmaCase> all;
  for (WeightFormat format : kAllFormats) {
    for (auto& list : {model_cases(format), odd_cases(format)})
      all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

TEST(MmaSpace, DefaultsAreInTheSpaceOfEveryArchitectureAtEveryNumberOfTokens) {
  for (const MmaCase& c : all_cases()) {
    for (int sm : kArchitectures) {
      const ArchitectureLimits& limits = *find_limits(sm);
      const std::vector<Scheme> schemes = make_schemes(c.spec, limits);
      for (int64_t tokens : kTokens) {
        const Candidate candidate = default_tactics(c.spec, limits, tokens);
        for (const Scheme& scheme : schemes) {
          if (scheme.name != candidate.scheme) continue;
          ASSERT_EQ(scheme.stages.size(), candidate.stages.size());
          for (size_t i = 0; i < scheme.stages.size(); ++i) {
            EXPECT_EQ(scheme.stages[i].name, candidate.stages[i].name);
            EXPECT_EQ(scheme.stages[i].space.why_excluded(candidate.stages[i].tactic, tokens), "")
                << c.name << " sm_" << sm << " T=" << tokens << " " << candidate.text();
          }
        }
      }
    }
  }
}

TEST(MmaSpace, TacticsSurviveBeingReadAndWritten) {
  const FusedMoeSpec spec = mma_spec(6144, 256, 256, 8, WeightFormat::kNvfp4);
  for (const Scheme& scheme : make_schemes(spec, *find_limits(90))) {
    const SchemePaths& paths = *find_scheme(scheme.name);
    for (int stage = 0; stage < 2; ++stage) {
      for (const Tactic& point : sample_points(scheme.stages[stage].space, 64, 20, 1)) {
        EXPECT_EQ(
            write_gemm_tactic(read_gemm_tactic(stage == 0 ? paths.gemm1 : paths.gemm2, point)),
            point);
      }
    }
  }
}

TEST(MmaSpace, ATileBeyondSharedMemoryIsExcludedWithBothNumbers) {
  const FusedMoeSpec spec = mma_spec(4096, 1024, 8, 2, WeightFormat::kBf16);
  GemmTactic tactic;
  tactic.path = GemmPath::kTile;
  tactic.token_tile = 64;
  tactic.groups = 2;
  tactic.stages = 0;  // 16 units * 64 tokens * 128 bytes = 131,072
  tactic.blocks = 1;
  tactic.depth = 1;
  const Scheme scheme = make_schemes(spec, *find_limits(120))[1];
  ASSERT_EQ(scheme.name, "tile");
  const std::string reason = scheme.stages[1].space.why_excluded(write_gemm_tactic(tactic), 256);
  EXPECT_NE(reason.find("131,072"), std::string::npos) << reason;
  EXPECT_NE(reason.find("101,376"), std::string::npos) << reason;
  EXPECT_EQ(make_schemes(spec, *find_limits(90))[1].stages[1].space.why_excluded(
                write_gemm_tactic(tactic), 256),
            "");
}

TEST(MmaSpace, SpecificationsBeyondTheFamilySayWhy) {
  const FusedMoeSpec spec = mma_spec(256, 256, 2048, 2, WeightFormat::kBf16);
  EXPECT_NE(why_unsupported(spec).find("2048"), std::string::npos);
  EXPECT_EQ(why_unsupported(mma_spec(256, 256, 8, 2, WeightFormat::kBf16)), "");
  FusedMoeSpec rounded = mma_spec(256, 256, 8, 2, WeightFormat::kFp8);
  EXPECT_EQ(why_unsupported(rounded), "");
  rounded.activations = ActivationFormat::kFp8;
  EXPECT_NE(why_unsupported(rounded).find("one scale"), std::string::npos);
}

TEST(MmaLayout, OddSizesAreRoundedUpInTheLayoutAlone) {
  FusedMoeSpec spec = mma_spec(178, 50, 8, 4, WeightFormat::kBf16);
  const WeightLayout gated = weight_layout(spec);
  EXPECT_EQ(gated.w13.groups, 7);  // 50 gates, 8 a group
  EXPECT_EQ(gated.w13.units, 3);
  EXPECT_EQ(gated.w2.groups, 12);
  EXPECT_EQ(gated.w2.units, 1);
  EXPECT_EQ(gated.activation_columns, 56);
  EXPECT_EQ(gated.w13.expert_bytes, 7 * 3 * 2048);
  spec.activation = Activation::kRelu2;
  EXPECT_EQ(weight_layout(spec).w13.groups, 4);
  EXPECT_EQ(weight_layout(spec).activation_columns, 64);
}

TEST(MmaLayout, EveryBitOfACodeWordHoldsOneBitOfOneCode) {
  for (int bits : {4, 8}) {
    std::bitset<32> taken;
    for (int value = 0; value < 32 / bits; ++value) {
      for (int bit = 0; bit < bits; ++bit) {
        const int at =
            bits == 4 ? kernels::code_bit(value, bit) : kernels::fp8_code_bit(value, bit);
        EXPECT_FALSE(taken[at]) << bits << " bits, value " << value << " bit " << bit;
        taken.set(at);
      }
    }
    EXPECT_TRUE(taken.all());
  }
}

TEST(MmaLayout, WorkspaceGrowsWithTokensUpToAPass) {
  const FusedMoeSpec spec = mma_spec(6144, 256, 256, 8, WeightFormat::kBf16);
  const WeightLayout layout = weight_layout(spec);
  const GemmTactic tactic;
  size_t last = 0;
  for (int64_t tokens = 1; tokens <= kPassTokens; tokens *= 2) {
    const size_t bytes = workspace_layout(spec, layout, tactic, tactic, tokens).bytes;
    EXPECT_GT(bytes, last);
    last = bytes;
  }
  EXPECT_EQ(workspace_layout(spec, layout, tactic, tactic, 4 * kPassTokens).bytes, last);
}

TEST(MmaLayout, TilesAreEnoughForAnyRouting) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t experts = 1 + random() % 40, pairs = 1 + random() % 300;
    std::vector<int64_t> rows(experts);
    for (int64_t i = 0; i < pairs; ++i) ++rows[random() % (1 + random() % experts)];
    for (int tile : {8, 16, 64}) {
      int64_t tiles = 0;
      for (int64_t r : rows) tiles += (r + tile - 1) / tile;
      EXPECT_LE(tiles, most_tiles(pairs, experts, tile));
    }
  }
}

}  // namespace
}  // namespace moetune::cuda

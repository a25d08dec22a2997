// The modes of a serving layer: deterministic, pinned, defaults only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "moetune/fused_moe.h"
#include "ops/moe/moe_workbench.h"
#include "tuner/fit.h"

namespace moetune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMostTokens = 33;

class FusedMoeModes : public ::testing::Test {
 protected:
  FusedMoeModes() {
    spec_.hidden = 128;
    spec_.intermediate = 64;
    spec_.experts = spec_.global_experts = 8;
    spec_.top_k = 2;
    options_.device = "cpu";
    options_.threads = 2;
    options_.max_tokens = kMostTokens;
    path_ = ::testing::TempDir() + "modes_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
    std::remove(path_.c_str());
  }
  ~FusedMoeModes() override { std::remove(path_.c_str()); }

  /// A configuration of this device in which other tactics than the default run.
  TunedConfiguration tuned() {
    auto backend = open_backend("cpu", {.threads = 2});
    auto runners = (*backend)->make_runners(spec_);
    const TunableRunner& runner = *(*runners)[0];
    Decision decision{.tokens = 8, .from = 1, .to = kMostTokens, .is_default = false};
    decision.candidate = runner.default_candidate(8);
    Tactic& tactic = decision.candidate.stages[0].tactic;
    tactic.set("prefetch_bytes", tactic.number("prefetch_bytes") == 1024 ? 4096 : 1024);
    EXPECT_EQ(why_unfit(runner, decision.candidate, 1, kMostTokens), "");
    Plan plan;
    plan.problem = moe_problem(spec_);
    plan.runner = runner.name();
    plan.layout = runner.layout(decision.candidate);
    plan.max_tokens = kMostTokens;
    plan.decisions = {decision};
    TunedConfiguration configuration;
    configuration.device = (*backend)->device().properties();
    configuration.put(plan);
    return configuration;
  }

  Result<std::unique_ptr<FusedMoe>> create() {
    auto weights = random_weights(spec_, 1);
    return FusedMoe::create(spec_, **weights, options_);
  }
  std::string error() {
    const auto layer = create();
    return layer.ok() ? "" : layer.error().message;
  }
  std::vector<uint16_t> run(FusedMoe& layer, int64_t tokens) {
    std::vector<uint16_t> hidden(static_cast<size_t>(tokens * spec_.hidden));
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = i % 3 == 0 ? 0x3F80 : 0xBF01;
    std::vector<float> logits(static_cast<size_t>(tokens * spec_.experts));
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
    std::vector<uint16_t> output(hidden.size());
    EXPECT_TRUE(layer.run(tokens, hidden.data(), logits.data(), output.data()).ok());
    return output;
  }

  FusedMoeSpec spec_;
  FusedMoeOptions options_;
  std::string path_;
};

TEST_F(FusedMoeModes, DeterministicLayersAgreeBitByBitOverThreads) {
  options_.deterministic = true;
  options_.config = path_;
  ASSERT_TRUE(tuned().save_merged(path_).ok());
  std::vector<std::vector<uint16_t>> expected;
  for (const int threads : {1, 2, 3}) {
    options_.threads = threads;
    auto layer = create();
    ASSERT_TRUE(layer.ok()) << layer.error().message;
    for (int64_t tokens = 1; tokens <= kMostTokens; tokens += 8) {
      const auto output = run(**layer, tokens);
      if (threads == 1) expected.push_back(output);
      EXPECT_EQ(output, expected[static_cast<size_t>(tokens / 8)]) << tokens << " tokens";
      EXPECT_EQ(run(**layer, tokens), output) << "another run";
    }
  }
}

TEST_F(FusedMoeModes, APinnedLayerRunsWhatTheFileSays) {
  const TunedConfiguration configuration = tuned();
  ASSERT_TRUE(configuration.save_merged(path_).ok());
  options_.pinned = true;
  options_.config = path_;
  auto layer = create();
  ASSERT_TRUE(layer.ok()) << layer.error().message;
  const FusedMoe::Selected selected = (*layer)->selected(5);
  EXPECT_EQ(selected.provenance, Provenance::kTuned);
  EXPECT_EQ(*selected.candidate, configuration.plans[0].decisions[0].candidate);
}

TEST_F(FusedMoeModes, APinnedLayerIsNeverMadeOfAnythingElse) {
  options_.pinned = true;
  EXPECT_THAT(error(), HasSubstr("no configuration is named"));
  options_.config = path_;
  EXPECT_THAT(error(), HasSubstr(path_)) << "there is no such file";
  TunedConfiguration configuration = tuned();
  configuration.device.identity["l2_kib"] = "1";
  ASSERT_TRUE(configuration.save_merged(path_).ok());
  EXPECT_THAT(error(), AllOf(HasSubstr(path_), HasSubstr("l2_kib:"), HasSubstr("1 there")));
  std::remove(path_.c_str());
  ASSERT_TRUE(tuned().save_merged(path_).ok());
  options_.max_tokens = kMostTokens + 1;
  EXPECT_THAT(error(), HasSubstr("the plan covers 1 to 33 tokens, not 34"));
  options_.max_tokens = kMostTokens;
  spec_.intermediate = 96;
  EXPECT_THAT(error(), HasSubstr("intermediate: 96 here, 64 there"));
  spec_.intermediate = 64;
  options_.threads = 1;
  EXPECT_THAT(error(), HasSubstr("threads: 1 here, 2 there"));
  options_.threads = 2;
  EXPECT_EQ(error(), "");
  options_.defaults_only = true;
  EXPECT_THAT(error(), HasSubstr("contradict"));
}

TEST_F(FusedMoeModes, ThePinnedModeAndTheSwitchToDefaultsContradictEachOther) {
  ASSERT_TRUE(tuned().save_merged(path_).ok());
  options_.pinned = true;
  options_.config = path_;
  ::setenv("MOETUNE_DEFAULT", "1", 1);
  EXPECT_THAT(error(), HasSubstr("switched off"));
  ::unsetenv("MOETUNE_DEFAULT");
  EXPECT_EQ(error(), "");
}

TEST_F(FusedMoeModes, DefaultsOnlyReadsNoConfiguration) {
  ASSERT_TRUE(tuned().save_merged(path_).ok());
  options_.config = path_;
  auto layer = create();
  ASSERT_TRUE(layer.ok()) << layer.error().message;
  EXPECT_EQ((*layer)->selected(5).provenance, Provenance::kTuned);
  const Candidate chosen = *(*layer)->selected(5).candidate;
  (*layer)->tuner().use_defaults(true);
  EXPECT_EQ((*layer)->selected(5).provenance, Provenance::kDefault) << "at once";
  EXPECT_NE(*(*layer)->selected(5).candidate, chosen);

  options_.defaults_only = true;
  options_.config = path_ + ".missing";
  layer = create();
  ASSERT_TRUE(layer.ok()) << layer.error().message;
  EXPECT_EQ((*layer)->selected(5).provenance, Provenance::kDefault);
  EXPECT_STREQ((*layer)->selected(5).reason, "tuning results are switched off");
}

}  // namespace
}  // namespace moetune

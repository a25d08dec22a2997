// Deterministic and pinned: which results may be in force. Case 34 (its other half, that the bits
// are the same, is in tests/engine/).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tuner/fake_world.h"
#include "tuner/sample_plans.h"
#include "tuner/sample_runner.h"
#include "tuner/tune.h"

namespace moetune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- Deterministic ----

// Two schemes of the same tactics. "atomic" is ten times as fast and adds in any order.
class TwoSchemes : public ::testing::Test {
 protected:
  static std::vector<Scheme> schemes() {
    const Space space({{"tile", {1, 2, 4}, ""}});
    return {{"ordered", {{"main", space}}}, {"atomic", {{"main", space}}}};
  }
  static Candidate make(const std::string& scheme, int64_t tile) {
    return {"fake", 1, scheme, {{"main", Tactic({{"tile", tile}})}}};
  }

  TwoSchemes() {
    runner_.deterministic = [](const Candidate& candidate) { return candidate.scheme != "atomic"; };
    world_.noise = [](Random& r, double) { return std::exp(0.02 * r.normal()); };
  }

  testing::FakeRunner runner_{"fake", schemes(), [](int64_t) { return make("ordered", 1); }};
  testing::FakeWorld world_{{&runner_}, {1, 8}, [](const Candidate& c, int64_t, int, Scale) {
                              const auto tile = c.stages[0].tactic.number("tile");
                              const double us = 8000.0 / static_cast<double>(tile);
                              return c.scheme == "atomic" ? us / 10 : us;
                            }};
};

TEST_F(TwoSchemes, TheFastestWinsWhereNobodyAsksForAnOrder) {
  const auto report = tune_problem(world_.request());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->plan.decisions.back().candidate, make("atomic", 4));
  EXPECT_FALSE(report->plan.deterministic);
}

TEST_F(TwoSchemes, OneWithoutAnOrderIsNotEvenTriedInTheDeterministicMode) {
  TuneRequest request = world_.request();
  request.deterministic = true;
  const auto report = tune_problem(request);
  ASSERT_TRUE(report.ok());
  for (const Decision& decision : report->plan.decisions)
    EXPECT_EQ(decision.candidate, make("ordered", 4));
  for (const std::string& text : world_.sampled)
    EXPECT_THAT(text, ::testing::Not(HasSubstr("atomic")));
  for (const auto& [text, times] : world_.times_checked)
    EXPECT_THAT(text, ::testing::Not(HasSubstr("atomic")));
}

TEST_F(TwoSchemes, WhatIsKnownFromOtherRunsDoesNotWinEither) {
  TuneRequest request = world_.request();
  ASSERT_TRUE(tune_problem(request).ok());
  request.deterministic = true;
  const auto report = tune_problem(request);
  ASSERT_TRUE(report.ok());
  for (const Decision& decision : report->plan.decisions)
    EXPECT_EQ(decision.candidate.scheme, "ordered");
}

TEST_F(TwoSchemes, ATunerOfThatModeTunesInIt) {
  AutoTuner tuner(sample_device(), {.deterministic = true});
  const auto report = tuner.tune(world_.request());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->plan.decisions.back().candidate.scheme, "ordered");
  EXPECT_TRUE(report->plan.deterministic);
  ASSERT_EQ(tuner.configuration().plans.size(), 1u);
  EXPECT_TRUE(tuner.configuration().plans[0].deterministic) << "what is saved says so, too";
}

TEST_F(TwoSchemes, ADefaultWithoutAnOrderIsAnError) {
  runner_.deterministic = [](const Candidate& candidate) { return candidate.scheme == "atomic"; };
  TuneRequest request = world_.request();
  request.deterministic = true;
  const auto report = tune_problem(request);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, AllOf(HasSubstr("default"), HasSubstr("deterministic mode")));
}

class LoadedPlans : public ::testing::Test {
 protected:
  static TunedConfiguration configuration_of(Plan plan, DeviceProperties device = sample_device()) {
    TunedConfiguration configuration;
    configuration.device = std::move(device);
    configuration.put(std::move(plan));
    return configuration;
  }
  Status pin(AutoTuner& tuner, const TunedConfiguration& configuration, int64_t max_tokens = 64) {
    return tuner.pin(configuration, sample_problem(), runners_, max_tokens);
  }
  std::string mismatch(const TunedConfiguration& configuration, int64_t max_tokens = 64) {
    AutoTuner tuner(sample_device());
    const Status pinned = pin(tuner, configuration, max_tokens);
    EXPECT_STREQ(tuner.handle(sample_problem()).find(5).reason,
                 pinned.ok() ? "" : "nothing is known of this problem");
    if (pinned.ok()) return "";
    EXPECT_EQ(pinned.error().code, ErrorCode::kUnsupported);
    return pinned.error().message;
  }

  SampleRunner runner_;
  std::vector<TunableRunner*> runners_ = {&runner_};
};

TEST_F(LoadedPlans, ADecisionWithoutAnOrderIsNotUsedInTheDeterministicModeAndSaysSo) {
  runner_.deterministic = [](const Candidate& candidate) {
    return candidate.stages[0].tactic.number("tile") != 8;
  };
  for (const bool deterministic : {false, true}) {
    AutoTuner tuner(sample_device(), {.deterministic = deterministic});
    ASSERT_TRUE(
        tuner.load(configuration_of(sample_plan({{7, 4}, {64, 8}})), AutoTuner::Source::kUser)
            .ok());
    const std::vector<std::string> notes = tuner.validate(sample_problem(), runners_);
    const PlanHandle handle = tuner.handle(sample_problem());
    EXPECT_EQ(handle.find(5).decision->candidate, sample_candidate(4)) << "the others hold";
    if (!deterministic) {
      EXPECT_THAT(notes, IsEmpty());
      EXPECT_EQ(handle.find(8).decision->candidate, sample_candidate(8));
      continue;
    }
    EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("8..64 tokens"), HasSubstr("tile=8"),
                                         HasSubstr("the same order on every run"))));
    EXPECT_EQ(handle.find(8).decision, nullptr);
    EXPECT_EQ(handle.find(8).provenance, Provenance::kDefault);
    EXPECT_STREQ(handle.find(8).reason, "the tuned tactic is not deterministic");
  }
}

// ---- Pinned ----

TEST_F(LoadedPlans, APinnedPlanIsInForceAndNothingReplacesIt) {
  AutoTuner tuner(sample_device());
  ASSERT_TRUE(pin(tuner, configuration_of(sample_plan({{7, 0}, {64, 8}}))).ok());
  const PlanHandle handle = tuner.handle(sample_problem());
  EXPECT_EQ(handle.find(5).decision, nullptr) << "the configuration says: the default";
  EXPECT_EQ(handle.find(8).decision->candidate, sample_candidate(8));
  ASSERT_TRUE(tuner.load(configuration_of(sample_plan({{64, 4}})), AutoTuner::Source::kUser).ok());
  EXPECT_THAT(tuner.validate(sample_problem(), runners_), IsEmpty());
  EXPECT_EQ(handle.find(8).decision->candidate, sample_candidate(8));
  EXPECT_EQ(handle.find(5).decision, nullptr);
  TuneRequest request{
      .problem = sample_problem(), .runners = runners_, .buckets = *Buckets::from({8})};
  const auto tuned = tuner.tune(request);
  ASSERT_FALSE(tuned.ok());
  EXPECT_THAT(tuned.error().message, HasSubstr("pinned"));
  tuner.use_defaults(true);
  EXPECT_EQ(handle.find(8).decision, nullptr) << "the switch to defaults is for everything";
}

TEST_F(LoadedPlans, ADeviceThatDiffersIsNamedEvenASibling) {
  DeviceProperties other = sample_device();
  other.identity["cores"] = "8";
  EXPECT_THAT(mismatch(configuration_of(sample_plan({{64, 8}}), other)),
              HasSubstr("cores: 2 here, 8 there"));
}

TEST_F(LoadedPlans, AnotherProblemIsNamedByWhatDiffers) {
  TunedConfiguration configuration = configuration_of(sample_plan({{64, 8}}, sample_problem("16")));
  Problem far = sample_problem("32");
  far.attributes["hidden"] = "128";
  configuration.put(sample_plan({{64, 8}}, far));
  EXPECT_THAT(mismatch(configuration),
              AllOf(HasSubstr("the likest of 2 differs in experts: 8 here, 16 there"),
                    ::testing::Not(HasSubstr("hidden"))));
  EXPECT_THAT(mismatch({.device = sample_device()}), HasSubstr("no plan at all"));
}

TEST_F(LoadedPlans, SizesThatThePlanDoesNotCoverAreNamed) {
  EXPECT_THAT(mismatch(configuration_of(sample_plan({{64, 8}})), 65),
              HasSubstr("the plan covers 1 to 64 tokens, not 65"));
  EXPECT_EQ(mismatch(configuration_of(sample_plan({{64, 8}})), 64), "");
}

TEST_F(LoadedPlans, EveryDecisionThatCannotBeFollowedIsNamed) {
  EXPECT_THAT(mismatch(configuration_of(sample_plan({{7, 3}, {16, 8}, {64, 5}}))),
              AllOf(HasSubstr("1..7 tokens"), HasSubstr("tile=3 is none of"),
                    HasSubstr("17..64 tokens"), ::testing::Not(HasSubstr("8..16 tokens"))));
  SampleRunner newer("cpu.one", 2);
  runners_ = {&newer};
  EXPECT_THAT(
      mismatch(configuration_of(sample_plan({{7, 8}, {64, 0}}))),
      AllOf(HasSubstr("measured with version 1"), HasSubstr("the default was that of version 1")));
}

TEST_F(LoadedPlans, AnotherDefaultThanTheMeasuredOneIsAMismatch) {
  runner_.default_tile = [](int64_t) { return 2; };
  EXPECT_THAT(mismatch(configuration_of(sample_plan({{64, 0}}))),
              AllOf(HasSubstr("the default was"), HasSubstr("tile=2} now")));
}

TEST_F(LoadedPlans, AnOrderThatIsAskedForHoldsForPinnedPlansToo) {
  runner_.deterministic = [](const Candidate& candidate) {
    return candidate.stages[0].tactic.number("tile") != 8;
  };
  AutoTuner tuner(sample_device(), {.deterministic = true});
  EXPECT_FALSE(pin(tuner, configuration_of(sample_plan({{64, 8}}))).ok());
  EXPECT_TRUE(pin(tuner, configuration_of(sample_plan({{64, 4}}))).ok());
}

TEST_F(LoadedPlans, NothingIsPinnedWhileResultsAreSwitchedOff) {
  AutoTuner tuner(sample_device());
  tuner.use_defaults(true);
  const Status pinned = pin(tuner, configuration_of(sample_plan({{64, 8}})));
  ASSERT_FALSE(pinned.ok());
  EXPECT_EQ(pinned.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace moetune

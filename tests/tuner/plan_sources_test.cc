// Where decisions come from, whether they still fit, and what a look-up says of them: cases 11, 12,
// 17 and 20.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "moetune/autotuner.h"
#include "moetune/function_runner.h"
#include "tuner/sample_plans.h"
#include "tuner/sample_runner.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Source = AutoTuner::Source;

TunedConfiguration configuration_of(Plan plan, DeviceProperties device = sample_device()) {
  TunedConfiguration configuration;
  configuration.device = std::move(device);
  configuration.put(std::move(plan));
  return configuration;
}

class PlanSourcesTest : public ::testing::Test {
 protected:
  std::vector<std::string> load(Plan plan, Source source = Source::kUser) {
    return load(configuration_of(std::move(plan)), source);
  }
  std::vector<std::string> load(const TunedConfiguration& configuration, Source source) {
    auto notes = tuner_.load(configuration, source);
    EXPECT_TRUE(notes.ok()) << (notes.ok() ? "" : notes.error().message);
    return notes.ok() ? *notes : std::vector<std::string>();
  }
  std::vector<std::string> validate() { return tuner_.validate(sample_problem(), runners_); }
  Lookup find(int64_t tokens) { return handle_.find(tokens); }
  // The tile that a look-up leads to; 0: the default.
  int64_t tile(int64_t tokens) {
    const Lookup lookup = find(tokens);
    return lookup.decision == nullptr ? 0
                                      : lookup.decision->candidate.stages[0].tactic.number("tile");
  }

  SampleRunner runner_;
  std::vector<TunableRunner*> runners_ = {&runner_};
  AutoTuner tuner_{sample_device()};
  PlanHandle handle_ = tuner_.handle(sample_problem());
};

TEST_F(PlanSourcesTest, NothingKnownIsTheDefaultAndSaysSo) {
  const Lookup lookup = find(5);
  EXPECT_EQ(lookup.decision, nullptr);
  EXPECT_EQ(lookup.provenance, Provenance::kDefault);
  EXPECT_STREQ(lookup.reason, "nothing is known of this problem");
  EXPECT_EQ(PlanHandle().find(1).provenance, Provenance::kDefault);
}

TEST_F(PlanSourcesTest, ALoadedPlanIsInForceOnceItsRunnersHaveBeenSeen) {
  load(sample_plan({{1, 0}, {7, 4}, {64, 8}}));
  EXPECT_EQ(tile(5), 0) << "nobody has checked that it fits";
  EXPECT_THAT(validate(), IsEmpty());
  EXPECT_EQ(find(1).provenance, Provenance::kDefault);
  EXPECT_STREQ(find(1).reason, "nothing was shown to be faster than the default");
  EXPECT_EQ(tile(2), 4);
  EXPECT_EQ(tile(7), 4);
  EXPECT_EQ(tile(8), 8);
  EXPECT_EQ(find(64).provenance, Provenance::kTuned);
}

TEST_F(PlanSourcesTest, OutsideOfThePlanTheDefaultRuns) {
  load(sample_plan({{64, 8}}));
  validate();
  for (int64_t tokens : {int64_t{0}, int64_t{-1}, int64_t{65}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(find(tokens).provenance, Provenance::kDefault) << tokens;
    EXPECT_STREQ(find(tokens).reason, "outside of the sizes that were tuned");
  }
}

TEST_F(PlanSourcesTest, AUsersFileBeatsAShippedOneInWhateverOrderTheyCome) {
  load(sample_plan({{64, 8}}), Source::kUser);
  load(sample_plan({{64, 4}}), Source::kShipped);
  validate();
  EXPECT_EQ(tile(5), 8);
  AutoTuner other(sample_device());
  ASSERT_TRUE(other.load(configuration_of(sample_plan({{64, 4}})), Source::kShipped).ok());
  other.validate(sample_problem(), runners_);
  const PlanHandle handle = other.handle(sample_problem());
  EXPECT_EQ(handle.find(5).decision->candidate, sample_candidate(4));
  ASSERT_TRUE(other.load(configuration_of(sample_plan({{64, 8}})), Source::kUser).ok());
  other.validate(sample_problem(), runners_);
  EXPECT_EQ(handle.find(5).decision->candidate, sample_candidate(8));
}

TEST_F(PlanSourcesTest, AShippedPlanIsUsedWhereNothingOfTheUsersFits) {
  load(sample_plan({{64, 3}}), Source::kUser);
  load(sample_plan({{64, 4}}), Source::kShipped);
  EXPECT_THAT(validate(), ElementsAre(HasSubstr("tile=3 is none of")));
  EXPECT_EQ(tile(5), 4);
}

TEST_F(PlanSourcesTest, ATacticThatLeftTheSpaceIsDroppedWithItsReason) {
  runner_.set_tiles({0, 1, 8});
  load(sample_plan({{7, 4}, {64, 8}}));
  EXPECT_THAT(validate(),
              ElementsAre(::testing::AllOf(HasSubstr("1..7 tokens"), HasSubstr("{tile=4}"),
                                           HasSubstr("main: tile=4 is none of 0, 1, 8"))));
  EXPECT_EQ(find(5).provenance, Provenance::kDefault);
  EXPECT_STREQ(find(5).reason, "the tuned tactic no longer fits");
  EXPECT_EQ(tile(8), 8) << "the others hold";
}

TEST_F(PlanSourcesTest, ARuleThatExcludesATacticSomewhereInItsIntervalDropsIt) {
  runner_.set_tiles({0, 1, 2, 4, 8}, {{"even", [](const Tactic&, int64_t tokens) {
                                         return std::string(tokens == 33 ? "not at 33" : "");
                                       }}});
  load(sample_plan({{32, 4}, {64, 8}}));
  EXPECT_THAT(validate(), ElementsAre(HasSubstr("at 33 tokens: main: even: not at 33")));
  EXPECT_EQ(tile(5), 4);
  EXPECT_EQ(tile(40), 0);
}

TEST_F(PlanSourcesTest, AnotherRunnerVersionIsStale) {
  SampleRunner newer("cpu.one", 2);
  runners_ = {&newer};
  load(sample_plan({{64, 8}}));
  EXPECT_THAT(validate(), ElementsAre(HasSubstr("version 1 of cpu.one, which is at 2 now")));
  EXPECT_EQ(find(5).provenance, Provenance::kStale);
  EXPECT_EQ(find(5).decision, nullptr);
}

TEST_F(PlanSourcesTest, UnknownRunnersSchemesAndStagesAreNamed) {
  const auto reason_for = [&](const std::function<void(Candidate&)>& change) {
    Plan plan = sample_plan({{64, 8}});
    change(plan.decisions[0].candidate);
    load(plan);
    const auto reasons = validate();
    EXPECT_EQ(reasons.size(), 1u);
    return reasons.empty() ? "" : reasons.front();
  };
  EXPECT_THAT(reason_for([](Candidate& c) { c.runner = "cpu.gone"; }),
              HasSubstr("there is no runner cpu.gone"));
  EXPECT_THAT(reason_for([](Candidate& c) { c.scheme = "fused"; }),
              HasSubstr("cpu.one has no scheme fused"));
  EXPECT_THAT(reason_for([](Candidate& c) { c.stages.push_back(c.stages[0]); }),
              HasSubstr("scheme single has 1 stages, not 2"));
  EXPECT_THAT(reason_for([](Candidate& c) { c.stages[0].name = "gemm1"; }),
              HasSubstr("stage 0 is main, not gemm1"));
  runners_.clear();
  EXPECT_THAT(reason_for([](Candidate&) {}), HasSubstr("no runner for the problem"));
}

TEST_F(PlanSourcesTest, ADecisionGoesToItsRunnerWhateverItsPlaceInTheList) {
  SampleRunner other("cpu.other");
  runners_ = {&other, &runner_};
  load(sample_plan({{64, 8}}));
  EXPECT_THAT(validate(), IsEmpty());
  EXPECT_EQ(find(5).decision->candidate.runner, "cpu.one");
}

TEST_F(PlanSourcesTest, ParametersInAnotherOrderAreBroughtIntoTodays) {
  FunctionRunner::Definition definition;
  definition.name = "cpu.one";
  definition.space = Space({{"a", {1, 2}, ""}, {"b", {3, 4}, ""}});
  definition.default_tactic = [](int64_t) { return Tactic({{"a", 1}, {"b", 3}}); };
  FunctionRunner two_parameters(std::move(definition));
  runners_ = {&two_parameters};
  Plan plan = sample_plan({{64, 8}});
  plan.decisions[0].candidate.stages[0].tactic = Tactic({{"b", 4}, {"a", 2}});
  load(plan);
  EXPECT_THAT(validate(), IsEmpty());
  EXPECT_EQ(find(5).decision->candidate.stages[0].tactic.text(), "a=2,b=4");
}

TEST_F(PlanSourcesTest, WhereTheDefaultReadsAnotherLayoutOneBadDecisionDropsAll) {
  runner_.layout_of = [](const Candidate& candidate) {
    return candidate.stages[0].tactic.number("tile") == 0 ? "plain" : "packed";
  };
  Plan plan = sample_plan({{7, 3}, {64, 8}});
  plan.layout = "packed";
  load(plan);
  EXPECT_EQ(validate().size(), 2u);
  EXPECT_EQ(tile(5), 0);
  EXPECT_EQ(tile(8), 0) << "the default cannot run on this packing, so there is none of both";
  plan.decisions[0] = sample_decision(1, 7, 4);
  load(plan);
  EXPECT_THAT(validate(), IsEmpty());
  EXPECT_EQ(tile(5), 4);
}

TEST_F(PlanSourcesTest, ACandidateOfAnotherLayoutThanItsPlanIsDropped) {
  Plan plan = sample_plan({{64, 8}});
  plan.layout = "other";
  load(plan);
  EXPECT_THAT(validate(), ElementsAre(HasSubstr("it reads layout plain, the plan has other")));
}

TEST_F(PlanSourcesTest, ASiblingsPlanIsNearestAndGivesWayToOwnPlans) {
  DeviceProperties sibling = sample_device();
  sibling.identity["cores"] = "64";
  EXPECT_THAT(load(configuration_of(sample_plan({{64, 2}}), sibling), Source::kUser),
              ElementsAre(HasSubstr("cores: 2 here, 64 there")));
  validate();
  EXPECT_EQ(find(5).provenance, Provenance::kNearest);
  EXPECT_EQ(tile(5), 2);
  EXPECT_THAT(tuner_.configuration().plans, IsEmpty()) << "it was not measured here";
  load(sample_plan({{64, 4}}), Source::kShipped);
  validate();
  EXPECT_EQ(find(5).provenance, Provenance::kTuned);
  EXPECT_EQ(tile(5), 4);
}

TEST_F(PlanSourcesTest, AnotherDevicesFileIsRefusedAndTheMismatchNamed) {
  DeviceProperties other = sample_device();
  other.identity["isa"] = "avx512";
  const auto notes = tuner_.load(configuration_of(sample_plan({{64, 2}}), other), Source::kUser);
  ASSERT_FALSE(notes.ok());
  EXPECT_EQ(notes.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(notes.error().message, HasSubstr("isa: avx2 here, avx512 there"));
}

TEST_F(PlanSourcesTest, AnotherToolchainIsReportedAndItsPlansAreUsed) {
  DeviceProperties device = sample_device();
  device.toolchain["compiler"] = "gcc 13";
  EXPECT_THAT(load(configuration_of(sample_plan({{64, 2}}), device), Source::kUser),
              ElementsAre(HasSubstr("compiler: gcc 12 here, gcc 13 there")));
  EXPECT_THAT(validate(), IsEmpty());
  EXPECT_EQ(tile(5), 2);
}

TEST_F(PlanSourcesTest, TheSwitchToDefaultsWorksAtOnceAndBack) {
  load(sample_plan({{64, 8}}));
  validate();
  EXPECT_EQ(tile(5), 8);
  tuner_.use_defaults(true);
  EXPECT_EQ(tile(5), 0);
  EXPECT_STREQ(find(5).reason, "tuning results are switched off");
  tuner_.use_defaults(false);
  EXPECT_EQ(tile(5), 8);
}

TEST_F(PlanSourcesTest, TheEnvironmentSwitchesToDefaultsFromTheStart) {
  ::setenv("MOETUNE_DEFAULT", "1", 1);
  AutoTuner tuner(sample_device());
  ::unsetenv("MOETUNE_DEFAULT");
  ASSERT_TRUE(tuner.load(configuration_of(sample_plan({{64, 8}})), Source::kUser).ok());
  tuner.validate(sample_problem(), runners_);
  EXPECT_EQ(tuner.handle(sample_problem()).find(5).decision, nullptr);
  tuner.use_defaults(false);
  EXPECT_NE(tuner.handle(sample_problem()).find(5).decision, nullptr);
}

TEST_F(PlanSourcesTest, LookupsAreCountedByProvenance) {
  load(sample_plan({{7, 0}, {64, 8}}));
  validate();
  for (int64_t tokens : {1, 2, 3, 10, 20}) find(tokens);
  const auto count = [&](Provenance provenance) {
    return tuner_.statistics().lookups[static_cast<size_t>(provenance)];
  };
  EXPECT_EQ(count(Provenance::kDefault), 3u);
  EXPECT_EQ(count(Provenance::kTuned), 2u);
  tuner_.reset_statistics();
  EXPECT_EQ(count(Provenance::kTuned), 0u);
}

TEST_F(PlanSourcesTest, AnswersStayValidWhenPlansAreReplaced) {
  load(sample_plan({{64, 8}}));
  validate();
  const Decision* before = find(5).decision;
  for (int64_t tile : {1, 2, 4}) {
    load(sample_plan({{64, tile}}));
    validate();
  }
  EXPECT_EQ(before->candidate, sample_candidate(8));
  EXPECT_EQ(find(5).decision->candidate, sample_candidate(4));
}

TEST_F(PlanSourcesTest, CheckingTheSamePlanAgainKeepsItsAnswers) {
  load(sample_plan({{64, 8}}));
  validate();
  const Decision* first = find(5).decision;
  for (int i = 0; i < 10; ++i) validate();
  EXPECT_EQ(find(5).decision, first) << "nothing new was published";
}

TEST_F(PlanSourcesTest, TheConfigurationHoldsThePlansInForce) {
  load(sample_plan({{64, 8}}));
  EXPECT_THAT(tuner_.configuration().plans, IsEmpty());
  validate();
  EXPECT_THAT(tuner_.configuration().plans, ElementsAre(sample_plan({{64, 8}})));
  EXPECT_EQ(tuner_.configuration().device, sample_device());
}

}  // namespace
}  // namespace moetune

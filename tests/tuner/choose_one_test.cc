// Tuning one's own operator by calling it: cases 6, 7, 9, 11, 14, 15 and 20.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "moetune/autotuner.h"
#include "tuner/sample_runner.h"
#include "tuner/scale_operator.h"

namespace moetune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ChooseOneTest : public ::testing::Test {
 protected:
  Result<Choice> try_choose(ScaleCall& call, const std::string& op = "scale") {
    return tuner_.choose_one(op, runners_, config_, call.arguments, device_);
  }
  Choice choose(int64_t rows, int64_t columns = 8, const std::string& op = "scale") {
    ScaleCall call(rows, columns);
    auto choice = try_choose(call, op);
    EXPECT_TRUE(choice.ok()) << (choice.ok() ? "" : choice.error().message);
    return choice.ok() ? *choice : Choice();
  }
  int64_t way(int64_t rows) {
    const Choice choice = choose(rows);
    return choice.candidate == nullptr ? -1 : choice.candidate->stages[0].tactic.number("way");
  }
  std::string error(ScaleCall& call) {
    const auto choice = try_choose(call);
    EXPECT_FALSE(choice.ok());
    return choice.ok() ? "" : choice.error().message;
  }

  autotune::Options options(std::set<std::string, std::less<>> skip_ops = {}) {
    return {.skip_ops = std::move(skip_ops), .now_s = [this] { return device_.now_s(); }};
  }

  VirtualTimeDevice device_;
  ScaleOperator operator_{device_};
  std::vector<TunableRunner*> runners_ = {&operator_.runner};
  TuningConfig config_ = ScaleCall::config();
  AutoTuner tuner_{device_.properties()};
};

TEST_F(ChooseOneTest, OutsideOfAScopeTheDefaultIsChosenAndNothingIsMeasured) {
  const Choice choice = choose(4);
  EXPECT_EQ(choice.provenance, Provenance::kDefault);
  EXPECT_EQ(choice.runner, &operator_.runner);
  EXPECT_EQ(*choice.candidate, operator_.runner.default_candidate(4));
  EXPECT_THAT(operator_.runs, Each(0));
  EXPECT_THAT(tuner_.configuration().plans, IsEmpty());
}

TEST_F(ChooseOneTest, TheChoiceRunsOnTheCallersArguments) {
  ScaleCall call(4);
  const auto choice = try_choose(call);
  ASSERT_TRUE(choice.ok());
  ASSERT_TRUE(choice->executable->run({.arguments = &call.arguments}).ok());
  EXPECT_EQ(call.output[3], 2 * call.input[3]);
}

TEST_F(ChooseOneTest, InAScopeTheFastestIsFoundAndKeptAfterwards) {
  {
    const autotune scope(tuner_, options());
    EXPECT_EQ(way(4), 3);
  }
  const Choice choice = choose(4);
  EXPECT_EQ(choice.provenance, Provenance::kTuned);
  EXPECT_EQ(way(4), 3);
  EXPECT_EQ(way(7), 3) << "7 rows belong to the bucket of 4";
  EXPECT_EQ(way(8), 0) << "8 do not";
  const TunedConfiguration known = tuner_.configuration();
  ASSERT_EQ(known.plans.size(), 1u);
  EXPECT_TRUE(known.plans[0].check_coverage().ok());
  EXPECT_EQ(known.plans[0].decisions.back().evidence.resolved, true);
  EXPECT_GT(tuner_.statistics().measurements, 0u);
}

TEST_F(ChooseOneTest, AKnownCallIsNotTunedAgain) {
  const autotune scope(tuner_, options());
  choose(4);
  const auto runs = operator_.runs;
  choose(4);
  choose(5);
  EXPECT_EQ(operator_.runs, runs);
}

TEST_F(ChooseOneTest, BucketsAreTunedOneByOneIntoOnePlan) {
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(16), 3);
  operator_.us = {50, 10, 30, 20};
  EXPECT_EQ(way(4), 1);
  EXPECT_EQ(way(16), 3);
  EXPECT_EQ(tuner_.configuration().plans.size(), 1u);
}

TEST_F(ChooseOneTest, TheDefaultStaysWhereNothingIsFaster) {
  operator_.us = {20, 40, 30, 20};
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(4), 0);
  EXPECT_EQ(choose(4).provenance, Provenance::kDefault);
  const auto runs = operator_.runs;
  choose(4);
  EXPECT_EQ(operator_.runs, runs) << "that the default stays is known now";
}

TEST_F(ChooseOneTest, AWrongCandidateDoesNotWinHoweverFast) {
  operator_.factor[3] = 2.01f;
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(4), 2);
  EXPECT_GT(tuner_.statistics().rejected_candidates, 0u);
}

TEST_F(ChooseOneTest, WhereAllCandidatesFailTheDefaultIsRememberedAndNoneTriedAgain) {
  operator_.fails = {false, true, true, true};
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(4), 0);
  const auto runs = operator_.runs;
  EXPECT_EQ(way(4), 0);
  EXPECT_EQ(operator_.runs, runs);
}

TEST_F(ChooseOneTest, WhereTheDefaultFailsNothingIsTunedAndItIsChosenAllTheSame) {
  operator_.fails = {true, false, false, false};
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(4), 0) << "running it will tell the caller why";
  const auto runs = operator_.runs;
  EXPECT_EQ(way(4), 0);
  EXPECT_EQ(operator_.runs, runs);
}

TEST_F(ChooseOneTest, TheCallersTensorsAreNotWrittenTo) {
  ScaleCall call(4);
  const std::vector<float> input = call.input;
  const autotune scope(tuner_, options());
  ASSERT_TRUE(try_choose(call).ok());
  EXPECT_THAT(call.output, Each(-1.0f));
  EXPECT_EQ(call.input, input);
}

TEST_F(ChooseOneTest, ACandidateThatCannotServeItsWholeBucketIsNotChosen) {
  ScaleOperator picky(device_, "scale.picky",
                      {{"even", [](const Tactic& tactic, int64_t rows) -> std::string {
                          return tactic.number("way") == 3 && rows % 2 != 0 ? "odd" : "";
                        }}});
  runners_ = {&picky.runner};
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(4), 2);
  EXPECT_EQ(way(5), 2);
}

TEST_F(ChooseOneTest, AboveTheLargestBucketItsDecisionHoldsWhereTheCandidateMayRun) {
  ScaleOperator bounded(device_, "scale.bounded",
                        {{"small", [](const Tactic& tactic, int64_t rows) -> std::string {
                            return tactic.number("way") == 3 && rows > 100 ? "too large" : "";
                          }}});
  runners_ = {&bounded.runner};
  {
    const autotune scope(tuner_, options());
    EXPECT_EQ(way(64), 3);
  }
  EXPECT_EQ(way(100), 3);
  EXPECT_EQ(way(101), 0);
  EXPECT_EQ(way(100), 3);
}

TEST_F(ChooseOneTest, AboveTheLargestBucketNothingIsKnownWhileOnlySmallerOnesAre) {
  {
    const autotune scope(tuner_, options());
    EXPECT_EQ(way(4), 3);
  }
  EXPECT_EQ(way(200), 0);
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(200), 3);
  EXPECT_EQ(way(16), 3);
  EXPECT_TRUE(tuner_.configuration().plans.at(0).check_coverage().ok());
}

TEST_F(ChooseOneTest, OtherStaticSizesTypesOrOperatorsAreOtherProblems) {
  {
    const autotune scope(tuner_, options());
    choose(4, 8);
  }
  EXPECT_EQ(choose(4, 8).provenance, Provenance::kTuned);
  EXPECT_EQ(choose(4, 16).provenance, Provenance::kDefault);
  EXPECT_EQ(choose(4, 8, "another").provenance, Provenance::kDefault);
  ScaleCall call(4);
  call.arguments[0].type = DataType::kI32;
  EXPECT_EQ(try_choose(call)->provenance, Provenance::kDefault);
}

TEST_F(ChooseOneTest, ALaterRunnerTunedHereBeatsAnEarlierOneFromAFile) {
  ScaleOperator later(device_, "scale.later");
  later.us = {9, 9, 9, 5};
  Plan from_file;
  {
    AutoTuner first(device_.properties());
    const autotune scope(first, options());
    ScaleCall call(4);
    ASSERT_TRUE(first.choose_one("scale", runners_, config_, call.arguments, device_).ok());
    from_file = first.configuration().plans.at(0);
  }
  TunedConfiguration file;
  file.device = device_.properties();
  file.put(from_file);
  ASSERT_TRUE(tuner_.load(file, AutoTuner::Source::kUser).ok());
  EXPECT_EQ(choose(4).runner, &operator_.runner);
  EXPECT_EQ(choose(4).provenance, Provenance::kTuned) << "the file is checked when it is needed";

  runners_ = {&operator_.runner, &later.runner};
  const autotune scope(tuner_, options());
  EXPECT_EQ(choose(16).runner, &later.runner);
  EXPECT_EQ(choose(4).runner, &operator_.runner);
}

TEST_F(ChooseOneTest, ADecisionGoesToItsRunnerWhateverItsPlaceInTheList) {
  ScaleOperator slow(device_, "scale.slow");
  slow.us = {500, 500, 500, 500};
  runners_ = {&slow.runner, &operator_.runner};
  {
    const autotune scope(tuner_, options());
    EXPECT_EQ(choose(4).runner, &operator_.runner);
  }
  runners_ = {&operator_.runner, &slow.runner};
  EXPECT_EQ(choose(4).runner, &operator_.runner);
  EXPECT_EQ(way(4), 3);
  runners_ = {&slow.runner};
  EXPECT_EQ(choose(4).runner, &slow.runner) << "its runner is not there";
  EXPECT_EQ(choose(4).provenance, Provenance::kDefault);
}

TEST_F(ChooseOneTest, SkippedOperatorsAreNotTunedAndLeaveNoEntry) {
  const autotune scope(tuner_, options({"scale"}));
  EXPECT_EQ(way(4), 0);
  EXPECT_THAT(operator_.runs, Each(0));
  EXPECT_THAT(tuner_.configuration().plans, IsEmpty());
  EXPECT_EQ(choose(4, 8, "another").candidate->stages[0].tactic.number("way"), 3);
}

TEST_F(ChooseOneTest, NestedScopesRestoreWhatTheyChangedAlsoOnAnException) {
  const autotune outer(tuner_, options({"scale"}));
  try {
    const autotune inner(tuner_, options());
    EXPECT_EQ(way(4), 3);
    throw std::runtime_error("leaves the inner scope");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(way(16), 0) << "the outer scope skips it again";
}

TEST_F(ChooseOneTest, AScopeIsForItsThreadAndItsTunerOnly) {
  AutoTuner other(device_.properties());
  const autotune scope(other, options());
  EXPECT_EQ(way(4), 0) << "that is another tuner's scope";
  const autotune own(tuner_, options());
  std::thread([&] { EXPECT_EQ(way(4), 0); }).join();
  EXPECT_EQ(way(4), 3);
}

TEST_F(ChooseOneTest, AnOperatorThatChoosesItselfIsTunedWithoutTuningWhatItCalls) {
  FunctionRunner::Definition outer;
  outer.name = "outer";
  outer.space = Space({{"way", {0, 1}, ""}});
  outer.default_tactic = [](int64_t) { return Tactic({{"way", 0}}); };
  outer.run = [&](const Call& call, const Tactic& tactic) -> Status {
    device_.spend_us(tactic.number("way") == 0 ? 50 : 10);
    TunableRunner* const inner[] = {&operator_.runner};
    const auto choice = tuner_.choose_one("inner", inner, config_, *call.arguments, device_);
    return choice.ok() ? choice->executable->run(call) : Status(choice.error());
  };
  FunctionRunner composed(std::move(outer));
  runners_ = {&composed};
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(4), 1);
  ASSERT_EQ(tuner_.configuration().plans.size(), 1u);
  EXPECT_EQ(tuner_.configuration().plans[0].problem.op, "scale");
}

TEST_F(ChooseOneTest, TheSwitchToDefaultsWorksAtOnce) {
  {
    const autotune scope(tuner_, options());
    EXPECT_EQ(way(4), 3);
  }
  tuner_.use_defaults(true);
  EXPECT_EQ(way(4), 0);
  EXPECT_EQ(choose(4).provenance, Provenance::kDefault);
  {
    const autotune scope(tuner_, options());
    EXPECT_EQ(way(16), 0) << "what is switched off is not tuned either";
  }
  tuner_.use_defaults(false);
  EXPECT_EQ(way(4), 3);
}

TEST_F(ChooseOneTest, InTheDeterministicModeATacticWithoutAnOrderIsNotEvenTried) {
  operator_.has_order[3] = false;
  AutoTuner tuner(device_.properties(), {.deterministic = true});
  const autotune scope(tuner, options());
  ScaleCall call(4);
  const auto choice = tuner.choose_one("scale", runners_, config_, call.arguments, device_);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->candidate->stages[0].tactic.number("way"), 2);
  EXPECT_EQ(operator_.runs[3], 0);
  operator_.has_order[0] = false;
  ScaleCall other(4, 16);
  const auto refused = tuner.choose_one("scale", runners_, config_, other.arguments, device_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("is not deterministic"));
}

TEST_F(ChooseOneTest, ExecutablesAreCompiledOnceForAllSizesOfABucket) {
  SampleRunner runner;
  runners_ = {&runner};
  for (int64_t rows : {4, 5, 7, 6, 4}) choose(rows);
  EXPECT_THAT(runner.compiled, ::testing::ElementsAre("cpu.one/single main{tile=0} up to 7"));
  choose(200);
  EXPECT_THAT(runner.compiled.back(), HasSubstr("up to 256"));
}

TEST_F(ChooseOneTest, EachSizeRunsTheDefaultThatIsMeantForIt) {
  SampleRunner runner;
  runner.default_tile = [](int64_t rows) { return rows < 6 ? 1 : 2; };
  runners_ = {&runner};
  const auto tile = [&](int64_t rows) {
    return choose(rows).candidate->stages[0].tactic.number("tile");
  };
  EXPECT_EQ(tile(4), 1);
  EXPECT_EQ(tile(7), 2);
  EXPECT_EQ(tile(5), 1);
  EXPECT_EQ(tile(6), 2);
}

TEST_F(ChooseOneTest, WithoutADynamicDimensionEachShapeStandsAlone) {
  config_ = {};
  const autotune scope(tuner_, options());
  EXPECT_EQ(way(5), 3);
  operator_.us = {50, 10, 30, 20};
  EXPECT_EQ(way(6), 1);
  EXPECT_EQ(tuner_.configuration().plans.size(), 2u);
}

TEST_F(ChooseOneTest, ZeroRowsAreServedByTheDefault) {
  EXPECT_EQ(choose(0).provenance, Provenance::kDefault);
}

TEST_F(ChooseOneTest, CallsThatMakeNoSenseAreErrors) {
  ScaleCall call(4);
  config_.outputs = 3;
  EXPECT_THAT(error(call), HasSubstr("3 outputs of 2 arguments"));
  config_.outputs = 0;
  EXPECT_THAT(error(call), HasSubstr("0 outputs"));
  config_.outputs = 1;
  call.arguments[0].shape[0] = 5;
  EXPECT_THAT(error(call), AllOf(HasSubstr("5 in argument 0"), HasSubstr("4 in argument 1")));
  call.arguments[0].shape[0] = 4;
  runners_.clear();
  EXPECT_THAT(error(call), HasSubstr("no runner"));
  runners_ = {&operator_.runner};
  config_.outputs = 2;
  config_.dynamic.clear();
  call.arguments[0].shape = {8, 4};
  EXPECT_THAT(error(call), HasSubstr("differ in their outermost dimension"));
}

}  // namespace
}  // namespace moetune

#include "tuner/routed_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Writes down what it is asked for.
class Recorder final : public Executor {
 public:
  Status load(std::span<const WeightLayout> layouts, Scale) override {
    for (const WeightLayout& layout : layouts) seen.push_back("load " + layout.runner);
    return {};
  }
  Status select(const Case& c, int samples) override {
    seen.push_back("select " + std::to_string(c.tokens) + "x" + std::to_string(samples));
    return {};
  }
  int prefetch(std::span<const Candidate> candidates, int64_t) override {
    for (const Candidate& candidate : candidates) seen.push_back("prefetch " + candidate.runner);
    return first;
  }
  Result<CheckOutput> check(const Candidate& candidate, int, std::span<const int64_t>) override {
    seen.push_back("check " + candidate.runner);
    return CheckOutput{};
  }
  Result<std::vector<Sample>> measure(std::span<const Candidate* const> order, int, int) override {
    std::vector<Sample> samples;
    for (const Candidate* candidate : order) {
      seen.push_back("measure " + candidate->runner);
      samples.push_back({.us = us, .state = {}});
    }
    return samples;
  }
  void unload() override { seen.emplace_back("unload"); }

  double us = 1;
  int first = 0;  // Of those that it is told of, which is compiled.
  std::vector<std::string> seen;
};

class RoutedExecutor : public ::testing::Test {
 protected:
  static Candidate of(const std::string& runner) { return {runner, 1, "single", {}}; }
  void load(const std::vector<WeightLayout>& layouts) {
    ASSERT_TRUE(routed_->load(layouts, Scale::kFull).ok());
    own_.seen.clear();
    hosted_.seen.clear();
  }

  Recorder own_, hosted_;
  std::unique_ptr<Executor> routed_ =
      make_routed_executor({{"own", &own_}, {"vllm", &hosted_}, {"torch", &hosted_}});
};

TEST_F(RoutedExecutor, CandidatesGoWhereTheirRunnerIsAtHome) {
  load({{"own", "a"}, {"vllm", "rows"}});
  EXPECT_TRUE(routed_->check(of("vllm"), 0, {}).ok());
  EXPECT_TRUE(routed_->check(of("own"), 0, {}).ok());
  const std::vector<Candidate> both{of("own"), of("torch")};
  routed_->prefetch(both, 1);
  EXPECT_THAT(own_.seen, ElementsAre("check own", "prefetch own"));
  EXPECT_THAT(hosted_.seen, ElementsAre("check vllm", "prefetch torch"));
}

TEST_F(RoutedExecutor, WhatIsCompiledIsToldByItsPlaceAmongAll) {
  load({{"own", "a"}, {"vllm", "rows"}});
  const std::vector<Candidate> all{of("own"), of("torch"), of("vllm"), of("own")};
  EXPECT_EQ(routed_->prefetch(all, 1), 0);
  own_.first = 1;
  EXPECT_EQ(routed_->prefetch(all, 1), 1);
  hosted_.first = 1;
  EXPECT_EQ(routed_->prefetch(all, 1), 2);
  hosted_.first = -1;
  EXPECT_EQ(routed_->prefetch(all, 1), 3);
  own_.first = -1;
  EXPECT_EQ(routed_->prefetch(all, 1), -1);
}

TEST_F(RoutedExecutor, SamplesComeInTheOrderThatWasAskedFor) {
  load({{"own", "a"}, {"vllm", "rows"}});
  own_.us = 3;
  hosted_.us = 5;
  const Candidate a = of("own"), b = of("vllm");
  const Candidate* const order[] = {&a, &b, &b, &a};
  const auto samples = routed_->measure(order, -1, 1);
  ASSERT_TRUE(samples.ok());
  std::vector<double> us;
  for (const Sample& sample : *samples) us.push_back(sample.us);
  EXPECT_THAT(us, ElementsAre(3, 5, 5, 3));
}

TEST_F(RoutedExecutor, WhoHasNothingLoadedHoldsNothing) {
  load({{"own", "a"}, {"vllm", "rows"}});
  const WeightLayout one{"vllm", "rows"};
  ASSERT_TRUE(routed_->load({&one, 1}, Scale::kFull).ok());
  ASSERT_TRUE(routed_->select({.tokens = 7}, 2).ok());
  EXPECT_THAT(own_.seen, ElementsAre("unload"));
  EXPECT_THAT(hosted_.seen, ElementsAre("load vllm", "select 7x2"));
}

TEST_F(RoutedExecutor, ARunnerThatNobodyHasIsAnError) {
  const auto checked = routed_->check(of("nobody"), 0, {});
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("nobody"));
  EXPECT_THAT(own_.seen, IsEmpty());
}

}  // namespace
}  // namespace moetune

#include "tuner/race.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tuner/fake_world.h"

namespace moetune {
namespace {

using namespace testing;  // NOLINT: the fakes

// A race of "kind" candidates at one spot.
class RaceTest : public ::testing::Test {
 protected:
  void make(std::map<std::string, double> times) {
    times_ = std::move(times);
    std::vector<std::string> kinds{"default"};
    for (const auto& [word, us] : times_) {
      if (word != "default") kinds.push_back(word);
    }
    runner_ = runner_with_kinds(kinds);
    world_ = std::make_unique<FakeWorld>(
        std::vector<TunableRunner*>{runner_.get()}, std::vector<int64_t>{8},
        [this](const Candidate& c, int64_t, int, Scale) { return times_.at(kind_of(c)); });
    kinds_ = std::move(kinds);
  }

  RaceResult run(double deadline_s = 1000) {
    request_.emplace(world_->request());
    request_->budget_s = 1e6;
    known_.emplace(*world_->store, request_->problem.key(), request_->device.key());
    account_.emplace(*world_->store, *request_);
    meter_.emplace(*request_, *known_, &*account_, report_);
    meter_->use_layouts({{"fake", "plain"}});
    const Spot spot{{8, "uniform", 0}, Scale::kFull};
    EXPECT_TRUE(meter_->setting(spot, runner_->default_candidate(8)).ok());
    world_->sampled.clear();
    std::vector<Contender> contenders;
    for (const std::string& word : kinds_) {
      Contender& added = contenders.emplace_back();
      added.candidate = kind(*runner_, word);
      added.pinned = word == "default";
      const auto expected = expected_.find(word);
      if (expected != expected_.end()) added.expected = expected->second;
      const auto resources = resources_.find(word);
      if (resources != resources_.end()) added.resources = resources->second;
    }
    return race(*meter_, {spot, -1, deadline_s, 7}, std::move(contenders));
  }

  int samples_of(const std::string& word) const {
    return static_cast<int>(
        std::count(world_->sampled.begin(), world_->sampled.end(), kind(*runner_, word).text()));
  }

  std::map<std::string, double> times_;
  std::map<std::string, double> expected_;
  std::map<std::string, size_t> resources_;
  std::vector<std::string> kinds_;
  std::unique_ptr<FakeRunner> runner_;
  std::unique_ptr<FakeWorld> world_;
  std::optional<TuneRequest> request_;
  std::optional<Known> known_;
  std::optional<RunAccount> account_;
  std::optional<Meter> meter_;
  TuneReport report_;
};

TEST_F(RaceTest, TheFastestWinsAndTheSlowLeaveEarly) {
  make({{"default", 5000}, {"a", 1000}, {"b", 3500}, {"c", 1400}, {"d", 1060}});
  world_->noise = [](Random& r, double) { return std::exp(0.01 * r.normal()); };
  const RaceResult result = run();
  EXPECT_EQ(kind_of(result.ranking[0].candidate), "a");
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.tried, 5);
  EXPECT_EQ(samples_of("b"), 1);  // 3.5 times the best
  EXPECT_LE(samples_of("c"), 3);
  EXPECT_GT(samples_of("d"), 1);
  EXPECT_EQ(samples_of("default"), samples_of("a"));  // always in
}

TEST_F(RaceTest, StopsWhenWhatIsLeftIsATie) {
  make({{"default", 1000}, {"a", 1000.5}, {"b", 1001}});
  world_->noise = [](Random& r, double) { return std::exp(0.02 * r.normal()); };
  const RaceResult result = run();
  EXPECT_TRUE(result.complete);
  EXPECT_LE(samples_of("a"), 30);
}

TEST_F(RaceTest, ATieGoesToTheIncumbentThenToFewerResourcesThenToTheLowerText) {
  make({{"default", 2000}, {"a", 1000}, {"b", 999}, {"c", 1001}});
  EXPECT_EQ(kind_of(run().ranking[0].candidate), "a");
  world_->store = make_memory_store();
  resources_ = {{"a", 100}, {"b", 100}, {"c", 10}};
  EXPECT_EQ(kind_of(run().ranking[0].candidate), "c");
  make({{"default", 1002}, {"a", 1000}, {"b", 999}, {"c", 1001}});
  EXPECT_EQ(kind_of(run().ranking[0].candidate), "default");
}

TEST_F(RaceTest, WithLittleTimeTriesWhatRanWellNearbyFirst) {
  std::map<std::string, double> times{{"default", 1e6}};
  for (char c = 'a'; c <= 'z'; ++c) times[std::string(1, c)] = 1e6;
  times["q"] = 0.5e6;
  make(times);
  for (const auto& [word, us] : times) expected_[word] = word == "q" ? 1 : 2;
  const RaceResult result = run(8);
  EXPECT_LE(result.tried, 6);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(kind_of(result.ranking[0].candidate), "q");
}

TEST_F(RaceTest, ReusesWhatTheStoreKnows) {
  make({{"default", 5000}, {"a", 1000}, {"b", 1500}});
  const RaceResult first = run();
  const RaceResult second = run();
  EXPECT_EQ(world_->sampled.size(), 0u);
  EXPECT_EQ(second.ranking.size(), first.ranking.size());
  EXPECT_EQ(kind_of(second.ranking[0].candidate), "a");
  runner_->set_version(2);
  run();
  EXPECT_GE(samples_of("a") + static_cast<int>(world_->sampled.size()), 3);
}

TEST_F(RaceTest, RejectsFailuresWrongResultsAndImpossibleTimesWithTheirReasons) {
  make({{"default", 5000},
        {"crash", 10},
        {"wrong", 10},
        {"zero", 10},
        {"past", 10},
        {"good", 4000}});
  world_->fault = [](const Candidate& c, const Case&) -> Status {
    if (kind_of(c) == "crash") return Error{ErrorCode::kRun, "it crashed"};
    return {};
  };
  world_->wrong = [](const Candidate& c, const Case&, int) {
    return kind_of(c) == "wrong" ? "row 0 is wrong" : "";
  };
  world_->lie = [](const Candidate& c, const Case&, double us) {
    if (kind_of(c) == "zero") return 0.0;
    return kind_of(c) == "past" ? -3.0 : us;
  };
  const RaceResult result = run();
  EXPECT_EQ(kind_of(result.ranking[0].candidate), "good");
  EXPECT_EQ(result.rejected.size(), 4u);
  std::map<std::string, std::string> reasons;
  for (const Rejection& rejection : report_.rejected) {
    reasons[kind_of(rejection.candidate)] = rejection.error.message;
  }
  EXPECT_EQ(reasons["crash"], "it crashed");
  EXPECT_EQ(reasons["wrong"], "row 0 is wrong");
  EXPECT_EQ(reasons["zero"], "a time of 0 us");
  EXPECT_EQ(reasons["past"], "a time of -3 us");
}

TEST_F(RaceTest, DropsWholeRoundsInWhichTheClockFell) {
  make({{"default", 2000}, {"a", 1000}, {"b", 1005}});
  world_->noise = [](Random& r, double) { return std::exp(0.02 * r.normal()); };
  world_->clock_mhz = [](double now) { return std::fmod(now - 999.9, 0.2) < 0.05 ? 1200 : 2000; };
  const RaceResult result = run();
  EXPECT_GT(report_.dropped_rounds, 0);
  for (const Contender& contender : result.ranking) {
    EXPECT_LT(contender.time.q3_us, 1.03 * times_.at(kind_of(contender.candidate)));
  }
}

TEST_F(RaceTest, OrderDiffersFromRoundToRoundAndRepeatsWithTheSeed) {
  make({{"default", 1000}, {"a", 1000}, {"b", 1000}, {"c", 1000}, {"d", 1000}});
  run();
  const std::vector<std::string> first = world_->sampled;
  world_->store = make_memory_store();
  run();
  EXPECT_EQ(world_->sampled, first);
  std::set<std::vector<std::string>> orders;
  for (size_t i = 5; i + 5 <= first.size(); i += 5) {
    orders.insert({first.begin() + static_cast<long>(i), first.begin() + static_cast<long>(i) + 5});
  }
  EXPECT_GT(orders.size(), 3u);
}

TEST(DifferInOneParameter, ComparesAllStages) {
  const auto make = [](int64_t a, int64_t b) {
    return Candidate{"r", 1, "s", {{"x", Tactic({{"p", a}})}, {"y", Tactic({{"p", b}})}}};
  };
  EXPECT_TRUE(differ_in_one_parameter(make(1, 1), make(1, 2)));
  EXPECT_FALSE(differ_in_one_parameter(make(1, 1), make(1, 1)));
  EXPECT_FALSE(differ_in_one_parameter(make(1, 1), make(2, 2)));
}

}  // namespace
}  // namespace moetune

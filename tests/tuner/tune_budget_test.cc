// A budget is what a problem gets on a device, counted over runs (case 26).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "tuner/fake_world.h"

namespace moetune {
namespace {

using namespace testing;  // NOLINT: the fakes

// A store whose last word on a run is never put: what a kill leaves.
class KilledStore final : public MeasurementStore {
 public:
  explicit KilledStore(MeasurementStore& store) : store_(store) {}
  Status put(const MeasurementRecord& record) override { return store_.put(record); }
  Result<std::vector<MeasurementRecord>> find(const std::string& problem,
                                              const std::string& device) override {
    return store_.find(problem, device);
  }
  Status put_run(const TuneRun& run) override { return run.plan ? Status() : store_.put_run(run); }
  Result<std::vector<TuneRun>> find_runs(const std::string& problem,
                                         const std::string& device) override {
    return store_.find_runs(problem, device);
  }

 private:
  MeasurementStore& store_;
};

// More candidates than the budget suffices for: every run takes all that it gets.
class TuneBudget : public ::testing::Test {
 protected:
  static constexpr double kBudget = 10;

  TuneBudget() {
    std::vector<std::string> kinds{"default"};
    for (int i = 0; i < 200; ++i) kinds.push_back(std::string("k").append(std::to_string(i)));
    first_ = runner_with_kinds(kinds);
    second_ = std::make_unique<FakeRunner>("other", first_->schemes(), [](int64_t) {
      return Candidate{
          "other", 1, "single", {{"main", Tactic({{"kind", std::string("default")}})}}};
    });
    world_ = std::make_unique<FakeWorld>(
        std::vector<TunableRunner*>{first_.get(), second_.get()}, std::vector<int64_t>{1, 16, 64},
        [](const Candidate& c, int64_t, int, Scale) {
          const std::string kind = kind_of(c);
          const double us = kind == "default" ? 3000 : 1500 + 5 * std::atoi(kind.c_str() + 1);
          return c.runner == "other" ? us * 1.2 : us;
        });
    world_->noise = [](Random& random, double) { return std::exp(0.05 * random.normal()); };
    world_->veto_workloads = {"zipf:1.2"};
  }

  TuneReport tune(double budget_s) { return tune(budget_s, *world_->store); }
  TuneReport tune(double budget_s, MeasurementStore& store) {
    world_->sampled.clear();
    TuneRequest request = world_->request();
    request.budget_s = budget_s;
    request.store = &store;
    return tune(request);
  }
  TuneReport tune(const TuneRequest& request) {
    auto report = AutoTuner(request.device).tune(request);
    EXPECT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(report->plan.check_coverage().ok());
    return std::move(report).value();
  }

  std::unique_ptr<FakeRunner> first_;
  std::unique_ptr<FakeRunner> second_;
  std::unique_ptr<FakeWorld> world_;
};

TEST_F(TuneBudget, ARunUnderOtherLimitsOrInAnotherModeHasItsOwnBudget) {
  EXPECT_FALSE(tune(kBudget).from_store);
  TuneRequest request = world_->request();
  request.budget_s = kBudget;
  request.store = world_->store.get();
  request.limits = "memory=1000";
  EXPECT_EQ(tune(request).earlier_s, 0);
  EXPECT_TRUE(tune(request).from_store) << "the second one with the same limits";
  request.limits.clear();
  request.deterministic = true;
  EXPECT_EQ(tune(request).earlier_s, 0);
  EXPECT_TRUE(tune(kBudget).from_store);
}

TEST_F(TuneBudget, ASecondRunWithTheSameOrASmallerOneDecidesFromWhatIsThere) {
  const TuneReport first = tune(kBudget);
  EXPECT_GT(first.seconds, kBudget / 2);
  EXPECT_FALSE(first.from_store);
  for (double budget : {kBudget, kBudget / 2, 0.0}) {
    const TuneReport second = tune(budget);
    EXPECT_TRUE(second.from_store);
    EXPECT_EQ(second.measurements, 0);
    EXPECT_TRUE(world_->sampled.empty());
    EXPECT_NEAR(second.earlier_s, first.seconds, 1e-6);
    EXPECT_EQ(second.plan, first.plan);
  }
}

TEST_F(TuneBudget, ALargerOneGoesOnWithTheRest) {
  const TuneReport first = tune(kBudget);
  const TuneReport second = tune(1.5 * kBudget);
  EXPECT_FALSE(second.from_store);
  EXPECT_GT(second.measurements, 0);
  EXPECT_LE(first.seconds + second.seconds, 1.5 * kBudget + 0.1);
  EXPECT_NEAR(tune(1.5 * kBudget).earlier_s, first.seconds + second.seconds, 1e-6);
  EXPECT_EQ(tune(1.5 * kBudget).plan, second.plan);
  EXPECT_EQ(tune(kBudget).plan, second.plan);
}

TEST_F(TuneBudget, AnInterruptedRunCountsForWhatItUsed) {
  const double start = world_->now_s;
  world_->on_sample = [&] {
    if (world_->now_s - start > 4) world_->stop.request_stop();
  };
  EXPECT_TRUE(tune(kBudget).interrupted);
  world_->on_sample = nullptr;
  world_->stop = std::stop_source();
  const TuneReport second = tune(kBudget);
  EXPECT_NEAR(second.earlier_s, 4, 0.1);
  EXPECT_GT(second.measurements, 0);
  EXPECT_LE(second.seconds, kBudget - 4 + 0.1);
  EXPECT_EQ(tune(kBudget).measurements, 0);
}

TEST_F(TuneBudget, AKilledRunCountsToWithinASecondAndIsDecidedFromItsMeasurements) {
  KilledStore killed(*world_->store);
  const TuneReport first = tune(kBudget, killed);
  const TuneReport second = tune(kBudget / 2);
  EXPECT_TRUE(second.from_store);
  EXPECT_EQ(second.measurements, 0);
  EXPECT_NEAR(second.earlier_s, first.seconds, 1.1);
  // What was confirmed once is confirmed.
  int tuned = 0;
  for (const Decision& decision : second.plan.decisions) {
    if (decision.is_default) continue;
    ++tuned;
    EXPECT_TRUE(decision.evidence.resolved);
    EXPECT_GT(decision.evidence.speedup_low, 1);
  }
  EXPECT_GT(tuned, 0);
}

TEST_F(TuneBudget, AChangedRunnerHasItsShareAgain) {
  const TuneReport first = tune(kBudget);
  second_->set_version(2);
  const TuneReport second = tune(kBudget);
  EXPECT_NEAR(second.earlier_s, first.seconds / 2, 1e-6);
  EXPECT_GT(second.measurements, 0);
  EXPECT_TRUE(tune(kBudget).from_store);
  first_->set_version(2);
  // Of the first run nothing is left, of the second one half.
  EXPECT_NEAR(tune(kBudget).earlier_s, second.seconds / 2, 1e-6);
}

TEST_F(TuneBudget, RunsOverOtherBucketsOrTrafficDoNotCount) {
  const TuneReport first = tune(kBudget);
  TuneRequest request = world_->request();
  request.budget_s = kBudget;
  request.buckets = Buckets::from({1, 16}).value();
  const TuneReport some = tune(request);
  EXPECT_TRUE(some.from_store) << "the first run had these buckets";
  EXPECT_EQ(some.plan.max_tokens, 16);
  EXPECT_EQ(some.plan.decisions.back().to, 16);
  request.buckets = Buckets::from({1, 16, 64, 128}).value();
  EXPECT_EQ(tune(request).earlier_s, 0);
  request = world_->request();
  request.budget_s = kBudget;
  request.seed = 1;
  EXPECT_EQ(tune(request).earlier_s, 0);
  request.seed = 0;
  request.workload = "balanced";
  EXPECT_EQ(tune(request).earlier_s, 0);
  request.workload = "uniform";
  request.veto_workloads.clear();
  EXPECT_EQ(tune(request).earlier_s, 0);
}

// It may fit now: the rest of the budget is there for it.
TEST_F(TuneBudget, ARunWithoutRoomForSomethingIsNotTheEnd) {
  world_->noise = nullptr;
  const double budget = 200;
  world_->fault = [](const Candidate& c, const Case&) -> Status {
    if (kind_of(c) == "k0") return Error{ErrorCode::kOutOfMemory, "2 GiB, 1 GiB are free"};
    return {};
  };
  const TuneReport first = tune(budget);
  EXPECT_LT(first.seconds, budget / 2) << "it converges";
  world_->fault = nullptr;
  const TuneReport second = tune(budget);
  EXPECT_FALSE(second.from_store);
  EXPECT_EQ(kind_of(second.plan.decisions.back().candidate), "k0");
}

// Of all candidates k0 would win, but its compiler takes 3 s.
class TuneCandidateBudget : public TuneBudget {
 protected:
  TuneCandidateBudget() {
    world_->noise = nullptr;
    world_->fault = [this](const Candidate& c, const Case&) -> Status {
      const bool is_new = kind_of(c) == slow_ && compiled_.insert(c.text()).second;
      if (is_new) world_->now_s += 3;
      return {};
    };
  }

  TuneReport tune_with(double candidate_budget_s) {
    compiled_.clear();
    TuneRequest request = world_->request();
    request.budget_s = 200;
    request.candidate_budget_s = candidate_budget_s;
    return tune(request);
  }
  static int64_t times_rejected(const TuneReport& report, const std::string& kind) {
    return std::count_if(report.rejected.begin(), report.rejected.end(),
                         [&](const Rejection& r) { return kind_of(r.candidate) == kind; });
  }

  std::string slow_ = "k0";
  std::set<std::string> compiled_;
};

TEST_F(TuneCandidateBudget, WhoTakesLongerIsRejectedWithThatReasonAndNotTriedAgain) {
  const TuneReport report = tune_with(2);
  EXPECT_EQ(times_rejected(report, "k0"), 2) << "one of each runner, at one size";
  for (const Rejection& rejection : report.rejected) {
    EXPECT_EQ(rejection.error.code, ErrorCode::kDeadline);
    EXPECT_NE(rejection.error.message.find("candidate's budget is 2 s"), std::string::npos)
        << rejection.error.message;
  }
  const int64_t tokens = report.rejected.at(0).tokens;
  for (const Decision& decision : report.plan.decisions) {
    const bool is_there = decision.from <= tokens && tokens <= decision.to;
    EXPECT_TRUE(!is_there || kind_of(decision.candidate) == "k1") << "the next best";
  }
}

TEST_F(TuneCandidateBudget, WithoutOneOrWithALargerOneTheSameCandidateWins) {
  EXPECT_EQ(times_rejected(tune_with(2), "k0"), 2);
  for (const double budget : {5.0, 0.0}) {
    const TuneReport report = tune_with(budget);
    EXPECT_EQ(report.earlier_s, 0) << "what was asked for is something else";
    EXPECT_EQ(times_rejected(report, "k0"), 0);
    for (const Decision& decision : report.plan.decisions)
      EXPECT_EQ(kind_of(decision.candidate), "k0");
  }
}

TEST_F(TuneCandidateBudget, TheDefaultIsExempt) {
  slow_ = "default";
  const TuneReport report = tune_with(0.001);
  EXPECT_EQ(std::count_if(report.rejected.begin(), report.rejected.end(),
                          [](const Rejection& r) {
                            return r.candidate.runner == "fake" &&
                                   kind_of(r.candidate) == "default";
                          }),
            0);
  EXPECT_GT(report.plan.decisions.size(), 0u);
}

TEST_F(TuneCandidateBudget, MustBeANumberThatIsNotNegative) {
  for (const double budget : {-1.0, std::nan("")}) {
    TuneRequest request = world_->request();
    request.candidate_budget_s = budget;
    const auto report = AutoTuner(request.device).tune(request);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace moetune

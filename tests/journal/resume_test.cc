// Tuning that takes up where an earlier process ended: the tuner with a journal, on times that are
// known.
#include <algorithm>
#include <cmath>

#include "journal/journal_testing.h"
#include "journal/store.h"
#include "tuner/fake_world.h"

namespace moetune {
namespace {

using namespace testing;  // NOLINT: the fakes
using journal::JournalStore;

class ResumeTest : public journal::testing::FolderTest {
 protected:
  ResumeTest() {
    other_ = std::make_unique<FakeRunner>("other", kinds_->schemes(), [](int64_t) {
      return Candidate{"other", 1, "single", {{"main", Tactic({{"kind", std::string("b")}})}}};
    });
    world_ = std::make_unique<FakeWorld>(
        std::vector<TunableRunner*>{kinds_.get(), other_.get()}, std::vector<int64_t>{1, 16, 64},
        [](const Candidate& c, int64_t, int, Scale) {
          const double us = kind_of(c) == "a" ? 800 : kind_of(c) == "b" ? 2000 : 1000;
          return c.runner == "other" ? us * 1.5 : us;
        });
    world_->noise = [](Random& random, double) { return std::exp(0.02 * random.normal()); };
    world_->veto_workloads = {"zipf:1.2"};
  }

  // One process's run.
  TuneReport tune() {
    JournalStore store({.path = path_});
    EXPECT_TRUE(store.warnings().empty());
    world_->sampled.clear();
    TuneRequest request = world_->request();
    request.store = &store;
    auto report = AutoTuner(request.device).tune(request);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return std::move(report).value();
  }

  std::unique_ptr<FakeRunner> kinds_ = runner_with_kinds({"default", "a", "b"});
  std::unique_ptr<FakeRunner> other_;
  std::unique_ptr<FakeWorld> world_;
};

TEST_F(ResumeTest, ASecondProcessMeasuresNothingAndDecidesTheSame) {
  const TuneReport first = tune();
  EXPECT_GT(first.measurements, 0);
  const TuneReport second = tune();
  EXPECT_EQ(second.measurements, 0);
  ASSERT_EQ(second.plan.decisions.size(), first.plan.decisions.size());
  for (size_t i = 0; i < first.plan.decisions.size(); ++i) {
    EXPECT_EQ(second.plan.decisions[i].candidate, first.plan.decisions[i].candidate);
    EXPECT_EQ(second.plan.decisions[i].evidence.speedup, first.plan.decisions[i].evidence.speedup);
  }
}

TEST_F(ResumeTest, AChangedVersionReMeasuresThatRunnerAlone) {
  tune();
  other_->set_version(2);
  const TuneReport report = tune();
  EXPECT_GT(report.measurements, 0);
  for (const std::string& candidate : world_->sampled)
    EXPECT_TRUE(candidate.starts_with("other/")) << candidate;
  EXPECT_EQ(tune().measurements, 0);
}

// How much memory is free, and may be used, is another matter in every run.
TEST_F(ResumeTest, WhatDidNotFitGetsAnotherChanceAndWhatIsWrongDoesNot) {
  world_->fault = [](const Candidate& candidate, const Case&) -> Status {
    if (kind_of(candidate) == "a") return Error{ErrorCode::kOutOfMemory, "2 GiB, 1 GiB are free"};
    if (kind_of(candidate) == "b") return Error{ErrorCode::kCompile, "no"};
    return {};
  };
  EXPECT_FALSE(tune().rejected.empty());
  world_->fault = nullptr;
  const TuneReport report = tune();
  EXPECT_EQ(kind_of(report.plan.decisions.back().candidate), "a");
  for (const std::string& candidate : world_->sampled)
    EXPECT_EQ(candidate.find("kind=b"), std::string::npos) << candidate;
}

TEST_F(ResumeTest, AnInterruptedRunIsTakenUp) {
  tune();
  const size_t all = world_->sampled.size();
  std::filesystem::remove(path_);
  world_->on_sample = [&] {
    if (world_->sampled.size() == all / 2) world_->stop.request_stop();
  };
  EXPECT_TRUE(tune().interrupted);
  world_->on_sample = nullptr;
  world_->stop = std::stop_source();
  tune();
  EXPECT_LT(world_->sampled.size(), all);
  EXPECT_EQ(tune().measurements, 0);
}

}  // namespace
}  // namespace moetune

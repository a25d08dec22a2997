#include "tuner/run_account.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "tuner/fake_world.h"

namespace moetune {
namespace {

// What a kill leaves: the last that was put.
class LastWord final : public MeasurementStore {
 public:
  Status put(const MeasurementRecord&) override { return {}; }
  Result<std::vector<MeasurementRecord>> find(const std::string&, const std::string&) override {
    return std::vector<MeasurementRecord>{};
  }
  Status put_run(const TuneRun& run) override {
    const std::scoped_lock lock(mutex_);
    ++puts_;
    last_ = run;
    return {};
  }
  int puts() {
    const std::scoped_lock lock(mutex_);
    return puts_;
  }
  TuneRun last() {
    const std::scoped_lock lock(mutex_);
    return last_;
  }

 private:
  std::mutex mutex_;
  int puts_ = 0;
  TuneRun last_;
};

class RunAccountTest : public ::testing::Test {
 protected:
  std::unique_ptr<testing::FakeRunner> runner_ = testing::runner_with_kinds({"default"});
  testing::FakeWorld world_{
      {runner_.get()}, {1}, [](const Candidate&, int64_t, int, Scale) { return 1.0; }};
  TuneRequest request_ = world_.request();
  LastWord store_;
};

TEST_F(RunAccountTest, ALongStepCountsWhileItGoesOnToWithinASecond) {
  RunAccount account(store_, request_);
  account.note(10);
  EXPECT_EQ(store_.last().seconds, 10);
  constexpr double kStep = 0.1;
  for (int i = 1; i <= 300; ++i) {
    account.beat(i * kStep);
    EXPECT_LE(10 + i * kStep - store_.last().seconds, 0.6) << "a kill now loses as much";
  }
  EXPECT_LT(store_.puts(), 70) << "and not one transaction for each beat";
}

TEST_F(RunAccountTest, StepsThatFollowEachOtherCountOnce) {
  RunAccount account(store_, request_);
  for (const double start : {0.0, 3.0, 3.2, 7.0}) {
    account.note(start);
    account.beat(1);
    EXPECT_NEAR(store_.last().seconds, start + 1, 0.5);
  }
}

TEST_F(RunAccountTest, ABeatBeforeTheFirstStepIsNothing) {
  RunAccount account(store_, request_);
  account.beat(100);
  EXPECT_EQ(store_.puts(), 0);
}

// With the real clock, and a thread that sees to it while the tuning thread waits for a compiler.
TEST(RunAccountThreads, AThreadBeatsUntilTheRunEnds) {
  const auto runner = testing::runner_with_kinds({"default"});
  testing::FakeWorld world{
      {runner.get()}, {1}, [](const Candidate&, int64_t, int, Scale) { return 1.0; }};
  TuneRequest request = world.request();
  request.now_s = nullptr;
  LastWord store;
  RunAccount account(store, request);
  account.note(5);
  while (store.last().seconds < 6) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  account.end(Plan(), 7, true);
  const int puts = store.puts();
  EXPECT_EQ(store.last().seconds, 7);
  EXPECT_TRUE(store.last().plan.has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_EQ(store.puts(), puts) << "the last word has the plan";
}

}  // namespace
}  // namespace moetune

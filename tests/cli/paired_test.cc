// Two candidates side by side, on an executor whose times are known.
#include "cli/paired.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"

namespace moetune::cli {
namespace {

Candidate candidate(const char* scheme) { return {"fake", 1, scheme, {}}; }

/// Times with a common drift and one percent of noise of their own.
class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(std::map<std::string, double> times_us) : times_us_(std::move(times_us)) {}

  Status load(std::span<const WeightLayout>, Scale) override { return {}; }
  Status select(const Case&, int) override { return {}; }
  Result<CheckOutput> check(const Candidate&, int, std::span<const int64_t>) override {
    return CheckOutput{};
  }
  Result<std::vector<Sample>> measure(std::span<const Candidate* const> order, int, int) override {
    std::vector<Sample> samples;
    std::string schemes;
    for (const Candidate* one : order) {
      drift_ *= 1.002;
      samples.push_back({times_us_.at(one->scheme) * drift_ * (1 + 0.01 * random_.normal()), {}});
      schemes += one->scheme[0];
    }
    ++orders[schemes];
    if (stop_after > 0 && --stop_after == 0) stop.request_stop();
    if (fail) return Error{ErrorCode::kRun, "it fell over"};
    return samples;
  }
  void unload() override {}

  std::map<std::string, int> orders;  ///< How often each order of candidates was asked for.
  std::stop_source stop;
  int stop_after = 0;
  bool fail = false;

 private:
  std::map<std::string, double> times_us_;
  double drift_ = 1;
  Random random_{7};
};

PairedTimes measured(FakeExecutor& executor, const char* tuned, double seconds) {
  auto times = measure_pair(executor, candidate("default"), candidate(tuned), 1, seconds, {},
                            executor.stop.get_token());
  EXPECT_TRUE(times.ok());
  return times.ok() ? *times : PairedTimes{};
}

TEST(MeasurePair, FindsTheRatioThroughADriftInRoundsOfDefaultTunedTunedDefault) {
  FakeExecutor executor({{"default", 120}, {"tuned", 100}});
  const PairedTimes times = measured(executor, "tuned", 10);
  EXPECT_NEAR(times.speedup.value, 1.2, 0.01);
  EXPECT_LT(times.speedup.low, 1.2);
  EXPECT_GT(times.speedup.high, 1.2);
  EXPECT_LT(times.speedup.high - times.speedup.low, 0.03);
  EXPECT_EQ(executor.orders["dttd"], times.rounds);
}

TEST(MeasurePair, StopsOnceTheRatioIsKnownWell) {
  FakeExecutor executor({{"default", 120}, {"tuned", 100}});
  EXPECT_LT(measured(executor, "tuned", 1000).rounds, MeasurementPolicy{}.max_confirm_rounds);
}

TEST(MeasurePair, MeasuresTheDefaultAloneWhereNothingElseRuns) {
  FakeExecutor executor({{"default", 120}});
  const PairedTimes times = measured(executor, "default", 0);
  EXPECT_EQ(times.speedup.value, 1);
  EXPECT_EQ(times.tuned_us, times.default_us);
  EXPECT_EQ(executor.orders["d"], times.rounds);
  EXPECT_EQ(executor.orders.size(), 1u);
}

TEST(MeasurePair, TakesItsFewestRoundsHoweverLittleTimeThereIs) {
  FakeExecutor executor({{"default", 120}, {"tuned", 100}});
  EXPECT_EQ(measured(executor, "tuned", -1).rounds, MeasurementPolicy{}.min_confirm_rounds);
}

TEST(MeasurePair, EndsWhenToldWithWhatItHas) {
  FakeExecutor executor({{"default", 120}, {"tuned", 119}});
  executor.stop_after = 2;
  EXPECT_EQ(measured(executor, "tuned", 1000).rounds, 2);

  executor.stop.request_stop();
  const auto nothing = measure_pair(executor, candidate("default"), candidate("tuned"), 1, 1, {},
                                    executor.stop.get_token());
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, ErrorCode::kInterrupted);
}

TEST(MeasurePair, PassesOnWhatGoesWrong) {
  FakeExecutor executor({{"default", 120}, {"tuned", 100}});
  executor.fail = true;
  const auto times = measure_pair(executor, candidate("default"), candidate("tuned"), 1, 1, {}, {});
  ASSERT_FALSE(times.ok());
  EXPECT_EQ(times.error().message, "it fell over");
}

}  // namespace
}  // namespace moetune::cli

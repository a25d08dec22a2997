// Look-ups in many threads while plans change: case 13.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "moetune/autotuner.h"
#include "tuner/sample_plans.h"
#include "tuner/sample_runner.h"
#include "tuner/scale_operator.h"

namespace moetune {
namespace {

constexpr int kThreads = 10;
constexpr int kLookups = 100'000;

TEST(AutoTunerThreads, LookupsSeeWholePlansWhileOthersArePublished) {
  SampleRunner runner;
  runner.set_tiles({0, 1, 2, 4, 5});
  std::vector<TunableRunner*> runners = {&runner};
  AutoTuner tuner(sample_device());
  std::atomic<int> torn{0};
  std::atomic<int> reading{kThreads};
  std::vector<std::thread> readers;
  for (int t = 0; t < kThreads; ++t) {
    readers.emplace_back([&, t] {
      const PlanHandle handle = tuner.handle(sample_problem());
      for (int i = 0; i < kLookups; ++i) {
        const int64_t tokens = 1 + (i * 7 + t) % 64;
        const Lookup lookup = handle.find(tokens);
        if (lookup.decision == nullptr) continue;
        const Decision& decision = *lookup.decision;
        const int64_t tile = decision.candidate.stages[0].tactic.number("tile");
        // The first plan has tiles 1 and 2 and changes at 32, the second 4 and 5 and changes at 31.
        const int64_t expected = tile <= 2 ? (tokens <= 32 ? 1 : 2) : (tokens <= 31 ? 4 : 5);
        const bool whole = decision.from <= tokens && tokens <= decision.to && tile == expected;
        torn += !whole;
      }
      --reading;
    });
  }
  TunedConfiguration first;
  first.device = sample_device();
  first.put(sample_plan({{32, 1}, {64, 2}}));
  TunedConfiguration second;
  second.device = sample_device();
  second.put(sample_plan({{31, 4}, {65, 5}}));
  for (int round = 0; reading > 0; ++round) {
    ASSERT_TRUE(tuner.load(round % 2 == 0 ? first : second, AutoTuner::Source::kUser).ok());
    tuner.validate(sample_problem(), runners);
    tuner.use_defaults(round % 16 == 15);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
  uint64_t counted = 0;
  for (uint64_t count : tuner.statistics().lookups) counted += count;
  EXPECT_EQ(counted, uint64_t{kThreads} * kLookups);
}

TEST(AutoTunerThreads, ChoicesAreValidWhileAnotherThreadTunes) {
  VirtualTimeDevice device;
  ScaleOperator tuned(device);
  std::vector<TunableRunner*> runners = {&tuned.runner};
  const TuningConfig config = ScaleCall::config();
  AutoTuner tuner(device.properties());
  std::atomic<int> wrong{0};
  std::atomic<bool> tuning{true};
  std::vector<std::thread> readers;
  for (int t = 0; t < 4; ++t) {
    readers.emplace_back([&, t] {
      ScaleCall call(1 + t * 9);
      do {
        const auto choice = tuner.choose_one("scale", runners, config, call.arguments, device);
        const bool valid = choice.ok() && choice->runner == &tuned.runner &&
                           choice->candidate != nullptr && choice->executable != nullptr;
        wrong += !valid;
      } while (tuning);
    });
  }
  {
    const autotune scope(tuner, {.now_s = [&] { return device.now_s(); }});
    for (int64_t rows : {1, 2, 4, 8, 16, 32, 64}) {
      ScaleCall call(rows);
      const auto choice = tuner.choose_one("scale", runners, config, call.arguments, device);
      ASSERT_TRUE(choice.ok());
      EXPECT_EQ(choice->provenance, Provenance::kTuned);
    }
  }
  tuning = false;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace moetune

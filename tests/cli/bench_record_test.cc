#include "cli/bench_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune::cli {
namespace {

using ::testing::HasSubstr;

BenchRow outcome(int64_t tokens, double speedup, bool is_default) {
  BenchRow made{.tokens = tokens, .workload = "uniform"};
  made.times.speedup = {speedup, speedup, speedup};
  made.is_default = is_default;
  return made;
}

TEST(BenchRecord, CountsWhatRunsInsteadOfTheDefaultAndWhatLosesByIt) {
  BenchRecord record;
  record.rows = {outcome(1, 1, true), outcome(2, 1.2, false), outcome(4, 0.985, false),
                 outcome(8, 0.97, false)};
  record.asked = 4;
  EXPECT_EQ(record.changed(), 3u);
  EXPECT_EQ(record.lost(), 1u);
  EXPECT_NEAR(record.worst_loss(), 0.03, 1e-9);
  EXPECT_THAT(record.to_text(),
              HasSubstr("Not the default runs in 3 of 4 rows; in 1 it is over 2 % slower.\n"));
  EXPECT_EQ(record.to_json()["rows_over_2_percent_slower"], 1);
}

TEST(BenchRecord, SaysWhatTimeDidNotSufficeForAndWhatWasMeasuredAgain) {
  BenchRecord record;
  record.rows = {outcome(1, 1.01, false), outcome(2, 1.2, false)};
  record.rows[0].is_remeasured = true;
  record.asked = 6;
  EXPECT_THAT(record.to_text(), HasSubstr("2 of 6 rows were measured: there was no time for more"));
  EXPECT_THAT(record.to_text(), HasSubstr("(1 seemed so and were measured again)"));
  EXPECT_TRUE(record.to_json()["rows"][0]["remeasured"]);
  EXPECT_EQ(record.to_json()["rows_asked_for"], 6);
}

}  // namespace
}  // namespace moetune::cli

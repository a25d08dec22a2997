// What commands work out of measurements, without any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bench_record.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace moetune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BenchRow row(int64_t tokens, double default_us, double tuned_us, const char* workload = "uniform") {
  BenchRow row{.tokens = tokens, .workload = workload, .provenance = Provenance::kTuned};
  const double speedup = default_us / tuned_us;
  row.times = {default_us, tuned_us, {speedup, speedup * 0.99, speedup * 1.01}, 10};
  return row;
}

TEST(Cliffs, AreCountsThatTakeOverTenPercentLongerThanALargerOne) {
  EXPECT_THAT(find_cliffs({row(8, 100, 100), row(16, 109, 105), row(32, 200, 200)}), IsEmpty());
  const auto cliffs = find_cliffs({row(8, 150, 150), row(16, 120, 120), row(32, 110, 110)});
  ASSERT_EQ(cliffs.size(), 1u) << "16 takes 9 % longer than 32: not a cliff";
  EXPECT_EQ(cliffs[0].tokens, 8);
  EXPECT_EQ(cliffs[0].larger, 32) << "the worst is named";
  EXPECT_NEAR(cliffs[0].ratio, 150.0 / 110, 1e-9);
}

TEST(Cliffs, ComparesOnlyCountsThatDifferEnoughUnderTheSameTraffic) {
  EXPECT_THAT(find_cliffs({row(100, 200, 200), row(105, 100, 100)}), IsEmpty());
  EXPECT_THAT(find_cliffs({row(8, 200, 200, "uniform"), row(16, 100, 100, "zipf:1.2")}), IsEmpty());
}

TEST(BenchRecords, SumUpRegretLossAndCoverage) {
  BenchRecord record;
  record.rows = {row(1, 100, 100), row(2, 120, 100), row(4, 98, 100)};
  record.rows[0].provenance = Provenance::kDefault;
  EXPECT_NEAR(record.median_regret(), 0, 1e-9);
  EXPECT_NEAR(record.worst_loss(), 0.02, 1e-9);
  EXPECT_THAT(record.coverage(), ElementsAre(2, 0, 0, 1));
  EXPECT_EQ(BenchRecord{}.median_regret(), 0);
}

TEST(Rooflines, NameTheLimitThatIsNearer) {
  const Ceilings ceilings{.read_bytes_per_s = 1e9,
                          .read_bytes = 1,
                          .operations_per_s = 1e12,
                          .read_name = "read",
                          .operations_name = "multiply"};
  const Roofline memory =
      roofline({.bytes = 1000, .operations = 1000, .touched_chunks = 1}, ceilings, 2);
  EXPECT_STREQ(memory.bound, "memory");
  EXPECT_EQ(memory.ceiling, "read");
  EXPECT_NEAR(memory.fraction, 0.5, 1e-9);
  const Roofline compute =
      roofline({.bytes = 1000, .operations = 4e6, .touched_chunks = 1}, ceilings, 8);
  EXPECT_STREQ(compute.bound, "compute");
  EXPECT_EQ(compute.ceiling, "multiply");
  EXPECT_NEAR(compute.fraction, 0.5, 1e-9);
  EXPECT_STREQ(roofline({}, {}, 8).bound, "") << "without ceilings nothing is claimed";
}

TEST(Rooflines, WhatWasReachedIsNeverMoreThanTheCeiling) {
  const Ceilings measured{.read_bytes_per_s = 1e9,
                          .read_bytes = 1,
                          .operations_per_s = 1e12,
                          .read_name = "read",
                          .operations_name = "multiply"};
  Ceilings ceilings = measured;
  const Work work{.bytes = 3000, .operations = 1000, .touched_chunks = 1};
  raise_to_seen(ceilings, work, 4);
  EXPECT_EQ(ceilings.read_bytes_per_s, 1e9) << "0.75 of it";
  EXPECT_EQ(ceilings.read_name, "read");
  raise_to_seen(ceilings, work, 2);
  raise_to_seen(ceilings, work, 1.5);
  EXPECT_NEAR(ceilings.read_bytes_per_s, 2e9, 1);
  EXPECT_THAT(ceilings.read_name, HasSubstr("read, then passed by the layer itself"));
  EXPECT_EQ(ceilings.read_name.find("passed"), ceilings.read_name.rfind("passed")) << "said once";
  EXPECT_EQ(ceilings.operations_name, "multiply");
  EXPECT_NEAR(roofline(work, ceilings, 1.5).fraction, 1, 1e-9);
  Ceilings unknown;
  raise_to_seen(unknown, work, 1);
  EXPECT_EQ(unknown.read_bytes_per_s, 0) << "what was not measured stays unknown";
}

TEST(Differences, NameOnlyWhatIsNotAsInTheDefault) {
  const auto candidate = [](int64_t tile, const char* feed) {
    return Candidate{"r",
                     1,
                     "separate",
                     {{"gemm1", Tactic({{"tile", tile}, {"block", int64_t{8}}})},
                      {"gemm2", Tactic({{"feed", std::string(feed)}})}}};
  };
  EXPECT_EQ(difference_text(candidate(2, "direct"), candidate(1, "direct")), "gemm1{tile=2}");
  EXPECT_EQ(difference_text(candidate(2, "staged"), candidate(1, "direct")),
            "gemm1{tile=2} gemm2{feed=staged}");
  EXPECT_EQ(difference_text(candidate(1, "direct"), candidate(1, "direct")), "nothing");
  Candidate other = candidate(1, "direct");
  other.scheme = "fused";
  EXPECT_EQ(difference_text(other, candidate(1, "direct")), other.text());
}

TEST(Tables, AlignTheirColumnsAndLeaveNoTrailingSpaces) {
  Table table({{"tokens"}, {"tactic", Table::Align::kLeft}});
  table.add_row({"1", "a"});
  table.add_row({"1024", "long one"});
  EXPECT_EQ(table.text(),
            "tokens  tactic\n"
            "------  --------\n"
            "     1  a\n"
            "  1024  long one\n");
}

TEST(Times, KeepThreeDigitsOrSo) {
  EXPECT_EQ(time_text(0), "-");
  EXPECT_EQ(time_text(12.345), "12.35 us");
  EXPECT_EQ(time_text(123.45), "123.5 us");
  EXPECT_EQ(time_text(4567), "4.567 ms");
  EXPECT_EQ(time_text(1234567), "1234.6 ms");
  EXPECT_EQ(duration_text(4.4), "4 s");
  EXPECT_EQ(duration_text(125), "2 min 05 s");
  EXPECT_EQ(duration_text(3725), "1 h 02 min");
}

}  // namespace
}  // namespace moetune::cli

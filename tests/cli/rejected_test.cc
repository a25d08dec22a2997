// How rejected candidates are grouped, counted and shown.
#include "cli/rejected.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

Candidate tiled(int64_t value, int version = 1) {
  return {"cpu.one", version, "single", {{"main", Tactic({{"tile", value}})}}};
}

MeasurementRecord out(const Candidate& candidate, int64_t tokens, ErrorCode kind,
                      const std::string& reason) {
  MeasurementRecord record;
  record.candidate = candidate;
  record.what.tokens = tokens;
  record.rejected = reason;
  record.rejected_as = kind;
  return record;
}

TEST(RejectedCandidates, AreListedOnceForEachKindOfReason) {
  const std::vector<RejectedCandidate> rejected =
      collect_rejected({out(tiled(1), 8, ErrorCode::kRun, "died"),
                        out(tiled(2), 8, ErrorCode::kWrongResult, "row 1"),
                        out(tiled(2), 64, ErrorCode::kWrongResult, "row 7"),
                        out(tiled(2, 2), 8, ErrorCode::kWrongResult, "row 1"),
                        out(tiled(4), 8, ErrorCode::kRun, "")});
  ASSERT_THAT(rejected, SizeIs(3)) << "a record without a reason is no rejection";
  EXPECT_EQ(rejected[1].candidate, tiled(2));
  EXPECT_THAT(rejected[1].tokens, ElementsAre(8, 64));
  EXPECT_EQ(rejected[1].reason, "row 7") << "the latest";
  EXPECT_EQ(rejected[2].candidate.runner_version, 2);
}

TEST(RejectedCandidates, MakeOneLineWithTheMostFrequentKindFirst) {
  EXPECT_EQ(rejected_line({}), "no candidate rejected");
  EXPECT_EQ(rejected_line(collect_rejected({out(tiled(1), 8, ErrorCode::kDeadline, "slow")})),
            "1 candidate rejected: 1 too slow to finish");
  EXPECT_EQ(rejected_line(collect_rejected({out(tiled(1), 8, ErrorCode::kRun, "died"),
                                            out(tiled(2), 8, ErrorCode::kWrongResult, "row 1"),
                                            out(tiled(4), 8, ErrorCode::kWrongResult, "row 1"),
                                            out(tiled(1), 8, ErrorCode::kWrongResult, "row 1")})),
            "3 candidates rejected: 2 wrong result, 1 crashed")
      << "one that is out for two reasons counts once";
}

TEST(RejectedCandidates, KeepToOneLineEachInATable) {
  std::vector<MeasurementRecord> records = {
      out(tiled(1), 8, ErrorCode::kRun,
          tiled(1).text() + ": the helper process died; it printed: #0 frame\n#1 frame\n" +
              std::string(500, 'x'))};
  for (int64_t value = 2; value < 10; ++value)
    records.push_back(out(tiled(value), 8, ErrorCode::kWrongResult, "row 1"));
  const std::string table = rejected_table(collect_rejected(records), 5);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 + 5 + 1);
  EXPECT_THAT(table, HasSubstr("the helper process died; it printed: #0 frame #1 frame"));
  EXPECT_THAT(table, Not(HasSubstr(std::string(100, 'x'))));
  EXPECT_THAT(table, HasSubstr("... and 4 more"));
  EXPECT_THAT(describe(collect_rejected(records))[0]["reason"].get<std::string>(),
              HasSubstr(std::string(500, 'x')))
      << "all of it with --json";
}

}  // namespace
}  // namespace moetune::cli

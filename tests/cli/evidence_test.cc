// What of a journal's records belongs to one decision.
#include "cli/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const std::map<std::string, int> kToday = {{"cpu.one", 2}};
const EvidencePlace kPlace{8, 5, 12};

Candidate tile(int64_t value, int version = 2) {
  return {"cpu.one", version, "single", {{"main", Tactic({{"tile", value}})}}};
}

JournalRecord timed(const Candidate& candidate, double median_us, int64_t tokens = 8) {
  JournalRecord record;
  record.origin.program = "moetune 0.1.0";
  record.measured.candidate = candidate;
  record.measured.what.tokens = tokens;
  record.measured.time = {median_us, median_us, median_us - 1, median_us + 1, 10};
  record.measured.phase = "race";
  return record;
}

JournalRecord compared(const char* phase, int64_t tokens, double speedup) {
  JournalRecord record = timed(tile(1), 100, tokens);
  record.measured.phase = phase;
  record.measured.versus = Comparison{.against = tile(0).text(),
                                      .against_version = 2,
                                      .speedup = speedup,
                                      .low = speedup - 0.01,
                                      .high = speedup + 0.01,
                                      .rounds = 12,
                                      .outcome = "better"};
  return record;
}

JournalRecord rejected(const Candidate& candidate, int64_t tokens) {
  JournalRecord record = timed(candidate, 0, tokens);
  record.measured.rejected = "row 3 is wrong";
  record.measured.rejected_as = ErrorCode::kWrongResult;
  return record;
}

TEST(Evidence, RanksWhoRacedThereOnTheLatestRecordOfEach) {
  const std::vector<JournalRecord> records = {timed(tile(0), 300), timed(tile(1), 500),
                                              timed(tile(1), 200), timed(tile(2), 100, 64),
                                              timed(tile(4, 1), 10)};
  const JournalEvidence evidence = evidence_at(records, kPlace, kToday);
  ASSERT_THAT(evidence.races, SizeIs(1));
  ASSERT_THAT(evidence.races[0].ranking, SizeIs(2)) << "not another size's, nor an old version's";
  EXPECT_EQ(evidence.races[0].ranking[0].candidate, tile(1));
  EXPECT_EQ(evidence.races[0].ranking[0].time.median_us, 200);
  EXPECT_EQ(evidence.of_other_versions, 1);
  ASSERT_THAT(evidence.measurers, SizeIs(1));
  EXPECT_EQ(evidence.measurers[0].measurements, 3);
}

TEST(Evidence, KeepsStagesAndTrafficApart) {
  std::vector<JournalRecord> records = {timed(tile(0), 300), timed(tile(1), 50),
                                        timed(tile(1), 400), timed(tile(1), 250)};
  records[1].measured.stage = 0;
  records[2].measured.what.workload = "zipf:1.2";
  records[3].measured.scale = Scale::kSubset;
  const JournalEvidence evidence = evidence_at(records, kPlace, kToday);
  ASSERT_THAT(evidence.races, SizeIs(4));
  EXPECT_EQ(evidence.races[0].stage, -1);
  EXPECT_EQ(evidence.races[3].stage, 0) << "the whole operator first";
}

TEST(Evidence, HasComparisonsOfTheBucketAndOfItsInterval) {
  const std::vector<JournalRecord> records = {
      compared("confirm", 8, 1.2), compared("confirm", 64, 1.5), compared("veto", 8, 1.1),
      compared("interval", 12, 1.1), compared("interval", 13, 1.3)};
  const JournalEvidence evidence = evidence_at(records, kPlace, kToday);
  ASSERT_THAT(evidence.confirmed, SizeIs(1));
  EXPECT_EQ(evidence.confirmed[0].versus->speedup, 1.2);
  EXPECT_THAT(evidence.vetoes, SizeIs(1));
  EXPECT_THAT(evidence.intervals, SizeIs(1)) << "13 belongs to the next decision";
  const std::string text = text_of(evidence, tile(0));
  EXPECT_THAT(text, HasSubstr("1.200x, interval 1.190 to 1.210, 12 rounds at 8 tokens of uniform"));
  EXPECT_THAT(text, HasSubstr("main{tile=1}"));
}

TEST(Evidence, CountsWhoIsOutElsewhereOnly) {
  const std::vector<JournalRecord> records = {rejected(tile(1), 8), rejected(tile(1), 64),
                                              rejected(tile(2), 64), rejected(tile(4, 1), 8)};
  const JournalEvidence evidence = evidence_at(records, kPlace, kToday);
  ASSERT_THAT(evidence.rejected, SizeIs(1));
  EXPECT_EQ(evidence.rejected[0].candidate, tile(1));
  EXPECT_EQ(evidence.rejected_elsewhere, 1);
}

TEST(Evidence, ShowsTheFastestTenAndHasAllInJson) {
  std::vector<JournalRecord> records;
  for (int64_t value = 0; value < 14; ++value)
    records.push_back(timed(tile(value), 100 + static_cast<double>(value)));
  const JournalEvidence evidence = evidence_at(records, kPlace, kToday);
  const std::string text = text_of(evidence, tile(0));
  EXPECT_THAT(text, HasSubstr("(default)"));
  EXPECT_THAT(text, HasSubstr("main{tile=9}"));
  EXPECT_THAT(text, Not(HasSubstr("main{tile=10}")));
  EXPECT_THAT(text, HasSubstr("and 4 slower ones"));
  EXPECT_THAT(describe(evidence)["races"][0]["candidates"], SizeIs(14));
}

}  // namespace
}  // namespace moetune::cli

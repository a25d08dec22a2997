#include "journal/database.h"

#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "journal/contents.h"
#include "journal/journal_testing.h"

namespace moetune::journal {
namespace {

using namespace testing;  // NOLINT: the records

class DatabaseTest : public FolderTest {};

TEST_F(DatabaseTest, KeepsEveryFieldOfEveryKindOfRecord) {
  MeasurementRecord open_ended = compared_record(9);
  open_ended.versus->low = 0;
  open_ended.versus->high = std::numeric_limits<double>::infinity();
  open_ended.what.seed = std::numeric_limits<uint64_t>::max();
  MeasurementRecord odd = rejected_record(11);
  odd.rejected = std::string("nul\0 in 'it'\n\xff", 14);
  odd.what.workload = "zipf:1.2";
  const std::vector<MeasurementRecord> records = {race_record(1), rejected_record(2),
                                                  compared_record(3), open_ended, odd};
  for (const MeasurementRecord& record : records) put(*open(), record);
  EXPECT_EQ(texts_of(found_in(*open())), texts_of(records));
}

TEST_F(DatabaseTest, FindsOneProblemOnOneDeviceOldestFirst) {
  auto database = open();
  MeasurementRecord other_problem = race_record(1);
  other_problem.problem += " experts=8";
  MeasurementRecord other_device = race_record(1);
  other_device.device += "x";
  for (const auto& record :
       {race_record(5), other_problem, race_record(2), other_device, race_record(9)}) {
    put(*database, record);
  }
  EXPECT_EQ(texts_of(found_in(*database)),
            texts_of({race_record(5), race_record(2), race_record(9)}));
  EXPECT_EQ(database->find("unknown", "unknown")->size(), 0u);
}

TEST_F(DatabaseTest, AMeasurementThatGrowsTakesTheRowOfItsEarlierSelf) {
  auto database = open();
  MeasurementRecord grown = race_record(1, 90);
  grown.time.samples = 10;
  put(*database, race_record(1));
  put(*database, race_record(2));
  put(*database, grown);
  put(*database, rejected_record(1));  // Something else, said of the same candidate.
  EXPECT_EQ(texts_of(found_in(*database)), texts_of({grown, race_record(2), rejected_record(1)}));
  // Another process measured it, or an earlier one: both are kept.
  put(*open(), race_record(1, 80));
  EXPECT_EQ(found_in(*database).size(), 4u);
}

TEST_F(DatabaseTest, VersionsOfARunnerAndRivalsAreKeptApart) {
  auto database = open();
  MeasurementRecord newer = race_record(1);
  newer.candidate.runner_version = 4;
  MeasurementRecord other_rival = compared_record(1);
  other_rival.versus->against_version = 4;
  for (const auto& record : {race_record(1), newer, compared_record(1), other_rival})
    put(*database, record);
  EXPECT_EQ(texts_of(found_in(*database)),
            texts_of({race_record(1), newer, compared_record(1), other_rival}));
}

TEST_F(DatabaseTest, CandidatesWhoseNamesHoldEndsOfLinesAreKeptApart) {
  auto database = open();
  MeasurementRecord one = race_record(1);
  MeasurementRecord other = race_record(1);
  one.candidate.runner_version = other.candidate.runner_version = 1;
  std::tie(one.candidate.runner, one.candidate.scheme) = std::pair("a\n1\nb", "c");
  std::tie(other.candidate.runner, other.candidate.scheme) = std::pair("a", "b\n1\nc");
  put(*database, one);
  put(*database, other);
  EXPECT_EQ(texts_of(found_in(*database)), texts_of({one, other}));
}

TEST_F(DatabaseTest, ManyRecordsGoInTogether) {
  auto database = open();
  const std::vector<MeasurementRecord> records = {race_record(1), race_record(2), race_record(3)};
  ASSERT_TRUE(database->put(records, {}).ok());
  EXPECT_EQ(texts_of(found_in(*database)), texts_of(records));
}

TEST_F(DatabaseTest, WhatAnotherProcessPrunedIsNoObstacle) {
  auto database = open();
  put(*database, race_record(1));
  ASSERT_TRUE(prune(*open(), {}).ok());
  EXPECT_EQ(found_in(*database).size(), 0u);
  // Row and names are remembered, and gone.
  put(*database, race_record(1, 90));
  put(*database, race_record(2));
  EXPECT_EQ(texts_of(found_in(*database)), texts_of({race_record(1, 90), race_record(2)}));
  EXPECT_EQ(*database->connection().text("PRAGMA foreign_key_check"), "");
}

TEST_F(DatabaseTest, PlansAreKept) {
  auto database = open();
  put_plan(*database, sample_plan(), {"test 1", {}});
  int seen = 0;
  ASSERT_TRUE(visit_plans(*open(), {}, [&](const PlanRecord& record, const Origin& origin) {
                EXPECT_EQ(record.plan, sample_plan().plan);
                EXPECT_EQ(record.device, sample_plan().device);
                EXPECT_EQ(record.unix_ms, sample_plan().unix_ms);
                EXPECT_EQ(origin.program, "test 1");
                ++seen;
                return Status();
              }).ok());
  EXPECT_EQ(seen, 1);
}

TEST_F(DatabaseTest, ARunGrowsInPlaceAndEndsWithItsPlan) {
  auto database = open();
  TuneRun run = sample_run();
  for (double seconds : {0.0, 1.0, 2.0}) {
    run.plan.reset();
    run.budget_s = 0;
    run.seconds = seconds;
    ASSERT_TRUE(database->put_run(run, {}).ok());
    EXPECT_EQ(texts_of(runs_in(*open())), texts_of({run}));
  }
  ASSERT_TRUE(database->put_run(sample_run(), {}).ok());
  const std::vector<TuneRun> found = runs_in(*open());
  ASSERT_EQ(texts_of(found), texts_of({sample_run()}));
  EXPECT_EQ(found[0].plan, sample_plan().plan);
  EXPECT_EQ(*database->connection().number("SELECT count(*) FROM plan"), 1);
}

TEST_F(DatabaseTest, RunsWithAPlanComeLastInTheOrderInWhichTheyEnded) {
  auto database = open();
  std::vector<TuneRun> runs;
  for (int64_t id = 1; id <= 3; ++id) {
    TuneRun begun = sample_run(id);
    begun.plan.reset();
    ASSERT_TRUE(database->put_run(begun, {}).ok());
    runs.push_back(begun);
  }
  ASSERT_TRUE(database->put_run(sample_run(3), {}).ok());
  ASSERT_TRUE(database->put_run(sample_run(1), {}).ok());
  EXPECT_EQ(texts_of(runs_in(*database)), texts_of({runs[1], sample_run(3), sample_run(1)}));
}

TEST_F(DatabaseTest, CeilingsAreOfTheProgramAndTheDeviceThatTheyWereMeasuredWith) {
  auto database = open();
  CeilingRecord ceiling{"cpu isa=avx2", "64 MiB, bf16", 1 << 20,    2e10,
                        "read",         1e11,           "multiply", 1700000000000};
  const Origin here{"moetune 1", {{"compiler", "gcc 12"}}};
  ASSERT_TRUE(database->put_ceiling(ceiling, here).ok());
  ceiling.read_bytes_per_s = 3e10;
  ASSERT_TRUE(database->put_ceiling(ceiling, here).ok());
  const auto found = open()->find_ceiling("cpu isa=avx2", "64 MiB, bf16", here);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->read_bytes_per_s, 3e10);
  EXPECT_EQ((*found)->operations_name, "multiply");
  EXPECT_EQ((*found)->unix_ms, 1700000000000);
  EXPECT_FALSE(*database->find_ceiling("cpu isa=avx512", "64 MiB, bf16", here));
  EXPECT_FALSE(*database->find_ceiling("cpu isa=avx2", "64 MiB, nvfp4", here));
  EXPECT_FALSE(*database->find_ceiling("cpu isa=avx2", "64 MiB, bf16", {"moetune 2", {}}));
}

TEST_F(DatabaseTest, TheFileIsItsOwnersAlone) {
  auto database = open();
  put(*database, race_record(1));
  for (const std::string& name : files()) {
    struct stat status {};
    ASSERT_EQ(::stat((folder_ / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << name;
  }
}

TEST_F(DatabaseTest, AnyPathIsAFile) {
  for (const char* name : {"a?b#c%20d", ":memory:", "file:x"}) {
    path_ = (folder_ / name).string();
    put(*open(), race_record(1));
    EXPECT_TRUE(std::filesystem::exists(path_)) << name;
    EXPECT_EQ(found_in(*open()).size(), 1u) << name;
  }
}

TEST_F(DatabaseTest, PlacesThatCannotHoldOneAreNamed) {
  EXPECT_EQ(Database::open(path_, {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Database::open(folder_, {.create = true}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Database::open("/dev/null", {.create = true}).error().code,
            ErrorCode::kInvalidArgument);
  const auto missing = Database::open(folder_ / "no" / "journal.db", {.create = true});
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("there is no folder"), std::string::npos);
  EXPECT_EQ(Database::open_to_read(path_, {}).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(files().empty());
}

TEST_F(DatabaseTest, ReadingChangesNothing) {
  put(*open(), race_record(1));
  const std::string before = read_bytes(path_);
  auto reading = Database::open_to_read(path_, std::chrono::milliseconds(100));
  ASSERT_TRUE(reading.ok()) << reading.error().message;
  EXPECT_EQ(found_in(**reading).size(), 1u);
  const MeasurementRecord record = race_record(2);
  EXPECT_EQ((*reading)->put({&record, 1}, {}).error().code, ErrorCode::kIo);
  reading->reset();
  EXPECT_EQ(read_bytes(path_), before);
}

TEST_F(DatabaseTest, AnotherProgramsDatabaseIsLeftAlone) {
  auto other = Connection::open(path_, Connection::Access::kWrite);
  ASSERT_TRUE(other->execute("CREATE TABLE bookmarks (x)").ok());
  const std::string before = read_bytes(path_);
  const auto refused = Database::open(path_, {.create = true});
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("another program's"), std::string::npos);
  EXPECT_EQ(read_bytes(path_), before);
}

}  // namespace
}  // namespace moetune::journal

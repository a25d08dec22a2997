#include "journal/contents.h"

#include "journal/journal_testing.h"

namespace moetune::journal {
namespace {

using namespace testing;  // NOLINT: the records

class ContentsTest : public FolderTest {
 protected:
  // Two devices; times are 1700000000000 + tile.
  std::unique_ptr<Database> filled() {
    auto database = open();
    for (int tile = 1; tile <= 4; ++tile) {
      MeasurementRecord record = race_record(tile);
      if (tile > 2) record.device = "cuda sm=90";
      put(*database, record);
    }
    put(*database, rejected_record(1));
    put(*database, compared_record(2));
    put_plan(*database, sample_plan());
    return database;
  }
};

TEST_F(ContentsTest, GroupsAddUp) {
  auto database = filled();
  const auto all = groups(*database, {});
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_EQ(all->size(), 2u);
  const Group& cpu = all->at(0);
  EXPECT_EQ(cpu.device, "cpu cores=2 isa=avx2");
  EXPECT_EQ(cpu.problem, "fused_moe hidden=64");
  EXPECT_EQ(cpu.measurements, 4);
  EXPECT_EQ(cpu.rejections, 1);
  EXPECT_EQ(cpu.comparisons, 1);
  EXPECT_EQ(cpu.candidates, 2);
  EXPECT_EQ(cpu.plans, 1);
  EXPECT_EQ(cpu.runs, 0);
  EXPECT_EQ(cpu.runners, std::vector<std::string>{"cpu.packed@3"});
  EXPECT_EQ(cpu.first_unix_ms, 1700000000001);
  EXPECT_EQ(cpu.last_unix_ms, 1700000000002);
  EXPECT_EQ(groups(*database, {.device = "sm=90"})->size(), 1u);
  EXPECT_EQ(groups(*database, {.problem = "hidden=65"})->size(), 0u);
}

TEST_F(ContentsTest, PruningTakesWhatMatchesAndNothingElse) {
  auto database = filled();
  const Filter old{.before_unix_ms = 1700000000002};
  EXPECT_EQ(count(*database, old)->measurements, 2);
  EXPECT_EQ(count(*database, old)->plans, 1);
  EXPECT_EQ(found_in(*database).size(), 4u);
  const auto pruned = prune(*database, old);
  ASSERT_TRUE(pruned.ok()) << pruned.error().message;
  EXPECT_EQ(pruned->measurements, 2);
  EXPECT_EQ(pruned->plans, 1);
  EXPECT_EQ(texts_of(found_in(*database)), texts_of({race_record(2), compared_record(2)}));

  ASSERT_TRUE(prune(*database, {.device = "sm=90"}).ok());
  EXPECT_EQ(groups(*database, {})->size(), 1u);
  ASSERT_TRUE(prune(*database, {}).ok());
  // The newest name stays, so that its number is given to nobody else.
  EXPECT_EQ(*database->connection().number("SELECT count(*) FROM candidate"), 1);
  EXPECT_EQ(*database->connection().number("SELECT count(*) FROM problem"), 1);
  EXPECT_EQ(*database->connection().number("SELECT max(id) FROM candidate"), 4);
}

TEST_F(ContentsTest, RunsAreCountedAndPrunedByWhenTheyBegan) {
  auto database = open();
  TuneRun late = sample_run(8);
  late.unix_ms += 1000;
  late.plan.reset();
  late.seconds = 10.5;
  ASSERT_TRUE(database->put_run(sample_run(7), {}).ok());
  ASSERT_TRUE(database->put_run(late, {}).ok());
  const auto found = groups(*database, {});
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->at(0).runs, 2);
  EXPECT_EQ(found->at(0).run_seconds, 70);
  EXPECT_EQ(found->at(0).plans, 1);
  const Filter old{.before_unix_ms = late.unix_ms};
  EXPECT_EQ(count(*database, old)->runs, 1);
  EXPECT_EQ(prune(*database, old)->runs, 1);
  EXPECT_EQ(texts_of(runs_in(*database)), texts_of({late}));
  // The names stay that it refers to.
  EXPECT_EQ(*database->connection().text("PRAGMA foreign_key_check"), "");
  EXPECT_EQ(prune(*database, {})->runs, 1);
  EXPECT_TRUE(runs_in(*database).empty());
}

TEST_F(ContentsTest, PruningADeviceTakesItsCeilingsToo) {
  auto database = open();
  const CeilingRecord ceiling{"cpu isa=avx2", "bf16", 1, 2, "read", 3, "multiply", 1700000000000};
  ASSERT_TRUE(database->put_ceiling(ceiling, {}).ok());
  ASSERT_TRUE(prune(*database, {.problem = "hidden=64"}).ok());
  EXPECT_TRUE(database->find_ceiling("cpu isa=avx2", "bf16", {})->has_value());
  ASSERT_TRUE(prune(*database, {.device = "sm=90"}).ok());
  EXPECT_TRUE(database->find_ceiling("cpu isa=avx2", "bf16", {})->has_value());
  ASSERT_TRUE(prune(*database, {.device = "isa=avx2"}).ok());
  EXPECT_FALSE(database->find_ceiling("cpu isa=avx2", "bf16", {})->has_value());
}

TEST_F(ContentsTest, PruningGivesTheSpaceBack) {
  auto database = open();
  std::vector<MeasurementRecord> records;
  for (int tile = 0; tile < 12000; ++tile) records.push_back(race_record(tile));
  ASSERT_TRUE(database->put(records, {}).ok());
  ASSERT_TRUE(database->connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").ok());
  const auto full = std::filesystem::file_size(path_);
  EXPECT_EQ(prune(*database, {})->measurements, 12000);
  EXPECT_LT(std::filesystem::file_size(path_), full / 10);
}

}  // namespace
}  // namespace moetune::journal

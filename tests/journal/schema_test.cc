#include "journal/schema.h"

#include <array>

#include "journal/journal_testing.h"

namespace moetune::journal {
namespace {

using namespace testing;  // NOLINT: the records

class SchemaTest : public FolderTest {};

Status add_a_column(Connection& connection) {
  return connection.execute("ALTER TABLE measurement ADD COLUMN humidity REAL NOT NULL DEFAULT 5");
}

Status fail(Connection& connection) {
  (void)connection.execute("DROP TABLE measurement");
  return Error{ErrorCode::kIo, "the lights went out"};
}

// What a next version will do to the files of the last one.
TEST_F(SchemaTest, AFileOfAnOlderVersionIsBroughtUpToDateWithItsContent) {
  put(*open(), race_record(1));
  std::vector<Migration> steps(migrations().begin(), migrations().end());
  steps.push_back(add_a_column);
  auto updated = Database::open(path_, {.steps = steps});
  ASSERT_TRUE(updated.ok()) << updated.error().message;
  Connection& connection = (*updated)->connection();
  EXPECT_EQ(*connection.number("PRAGMA user_version"), static_cast<int64_t>(steps.size()));
  EXPECT_EQ(*connection.number("SELECT humidity FROM measurement"), 5);
  EXPECT_EQ(texts_of(found_in(**updated)), texts_of({race_record(1)}));
}

TEST_F(SchemaTest, AMigrationThatFailsChangesNothing) {
  put(*open(), race_record(1));
  std::vector<Migration> steps(migrations().begin(), migrations().end());
  steps.push_back(fail);
  EXPECT_EQ(Database::open(path_, {.steps = steps}).error().code, ErrorCode::kIo);
  EXPECT_EQ(texts_of(found_in(*open())), texts_of({race_record(1)}));
}

// Tables as the first release made them: a file of that time stays readable for ever.
TEST_F(SchemaTest, VersionOneIsRead) {
  auto connection = Connection::open(path_, Connection::Access::kWrite);
  ASSERT_TRUE(connection.ok());
  const Status made = connection->execute(read_bytes(VERSION_1_SQL));
  ASSERT_TRUE(made.ok()) << made.error().message;
  auto found = open()->find("fused_moe hidden=64", "cpu isa=avx2");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(found->at(0).candidate.text(), "cpu.packed/single main{tile=16,order=rows}");
  EXPECT_EQ(found->at(0).candidate.runner_version, 2);
  EXPECT_EQ(found->at(0).time, (TimeSummary{12.5, 12, 12.25, 13, 3}));
  EXPECT_EQ(found->at(0).state.clock_mhz, 3400);
  EXPECT_EQ(found->at(1).versus->outcome, "better");
  EXPECT_EQ(found->at(1).versus->high, 1.25);
}

// Version 1 knew no runs: what they spent counts as nothing, and from now on it counts.
TEST_F(SchemaTest, VersionOneIsBroughtUpToDateWithItsContent) {
  auto connection = Connection::open(path_, Connection::Access::kWrite);
  ASSERT_TRUE(connection.ok() && connection->execute(read_bytes(VERSION_1_SQL)).ok());
  auto database = open();
  EXPECT_EQ(*database->connection().number("PRAGMA user_version"), 2);
  EXPECT_TRUE(database->find_runs("fused_moe hidden=64", "cpu isa=avx2")->empty());
  TuneRun run = sample_run();
  run.problem = "fused_moe hidden=64";
  run.device = "cpu isa=avx2";
  ASSERT_TRUE(database->put_run(run, {}).ok());
  EXPECT_EQ(open()->find_runs(run.problem, run.device)->size(), 1u);
  EXPECT_EQ(database->find(run.problem, run.device)->size(), 2u);
  // Nothing is made twice, and the old name of the device is the new one's.
  EXPECT_EQ(*database->connection().number("SELECT count(*) FROM device"), 1);
}

TEST_F(SchemaTest, ANewerVersionIsLeftAsItIs) {
  put(*open(), race_record(1));
  {
    auto connection = Connection::open(path_, Connection::Access::kWrite);
    ASSERT_TRUE(connection->execute("PRAGMA user_version = 99").ok());
  }
  const std::string before = read_bytes(path_);
  const auto refused = Database::open(path_, {.create = true});
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("version 99"), std::string::npos);
  EXPECT_EQ(Database::open_to_read(path_, {}).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(read_bytes(path_), before);
}

}  // namespace
}  // namespace moetune::journal

#include "journal/store.h"

#include <random>
#include <thread>

#include "journal/journal_testing.h"

namespace moetune::journal {
namespace {

using namespace testing;  // NOLINT: the records
using std::chrono::milliseconds;

class StoreTest : public FolderTest {
 protected:
  std::unique_ptr<JournalStore> store(milliseconds retry_after = milliseconds(10000)) {
    return std::make_unique<JournalStore>(JournalStore::Options{
        .path = path_, .origin = {}, .patience = milliseconds(20), .retry_after = retry_after});
  }

  // A sound file with so many records, closed.
  void fill(int records) {
    auto database = open();
    for (int i = 0; i < records; ++i) put(*database, race_record(i));
  }

  // The only file that was set aside, without its log.
  std::string aside() const {
    std::vector<std::string> found;
    for (const std::string& name : files()) {
      const bool is_log = name.ends_with("-wal") || name.ends_with("-shm");
      if (name.starts_with("journal.db.damaged-") && !is_log) found.push_back(name);
    }
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? "" : (folder_ / found[0]).string();
  }

  // Opening says what happened, keeps the bytes, and the new file works.
  void expect_set_aside(const std::string& bytes) {
    {
      auto opened = store();
      ASSERT_EQ(opened->warnings().size(), 1u);
      EXPECT_NE(opened->warnings()[0].find("set aside as"), std::string::npos)
          << opened->warnings()[0];
      EXPECT_TRUE(opened->put(race_record(1)).ok());
    }
    EXPECT_EQ(read_bytes(aside()), bytes);
    EXPECT_EQ(texts_of(found_in(*open())), texts_of({race_record(1)}));
    EXPECT_TRUE(store()->warnings().empty());
  }

  std::vector<MeasurementRecord> found_in_store(JournalStore& store) {
    const MeasurementRecord usual = race_record(1);
    auto found = store.find(usual.problem, usual.device);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? std::move(found).value() : std::vector<MeasurementRecord>{};
  }
};

TEST_F(StoreTest, WhatWasPutIsFoundByTheNextOne) {
  {
    auto first = store();
    EXPECT_TRUE(first->warnings().empty());
    ASSERT_TRUE(first->put(race_record(1)).ok());
    ASSERT_TRUE(first->put(rejected_record(2)).ok());
    ASSERT_TRUE(first->put_run(sample_run()).ok());
  }
  EXPECT_EQ(texts_of(found_in_store(*store())), texts_of({race_record(1), rejected_record(2)}));
}

TEST_F(StoreTest, AFileThatIsNoDatabaseIsSetAside) {
  write_file(path_, "these are not the bytes you are looking for\n");
  expect_set_aside(read_bytes(path_));
}

TEST_F(StoreTest, AnEmptyFileIsFilled) {
  write_file(path_, "");
  auto opened = store();
  EXPECT_TRUE(opened->warnings().empty());
  EXPECT_TRUE(opened->put(race_record(1)).ok());
}

TEST_F(StoreTest, ADamagedHeaderIsSetAside) {
  fill(50);
  std::string bytes = read_bytes(path_);
  for (size_t i = 0; i < 100; ++i) bytes[i] = static_cast<char>(7 * i);
  write_file(path_, bytes);
  expect_set_aside(bytes);
}

TEST_F(StoreTest, AnOverwrittenMiddleIsSetAside) {
  fill(500);
  std::string bytes = read_bytes(path_);
  ASSERT_GT(bytes.size(), 40000u);
  std::mt19937 random(1);
  for (size_t i = 20000; i < 32000; ++i) bytes[i] = static_cast<char>(random());
  write_file(path_, bytes);
  expect_set_aside(bytes);
}

TEST_F(StoreTest, ATruncatedFileIsSetAside) {
  fill(500);
  const std::string bytes = read_bytes(path_).substr(0, 30000);
  write_file(path_, bytes);
  expect_set_aside(bytes);
}

// At any length and anywhere: sound or set aside, never a crash, and always usable. Also where the
// file is too large to be looked at beforehand.
TEST_F(StoreTest, NoDamageStopsIt) {
  fill(200);
  const std::string sound = read_bytes(path_);
  std::mt19937 random(2);
  for (int round = 0; round < 120; ++round) {
    std::string bytes = sound;
    if (round % 3 == 0) bytes.resize(random() % sound.size());
    const size_t length = 1 + random() % 5000;
    for (size_t i = 0, at = random() % sound.size(); i < length && at + i < bytes.size(); ++i)
      bytes[at + i] = static_cast<char>(random());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    write_file(path_, bytes);
    JournalStore opened({.path = path_,
                         .patience = milliseconds(20),
                         .checked_bytes = round % 2 == 0 ? Database::kCheckedBytes : 0});
    const MeasurementRecord usual = race_record(1);
    (void)opened.find(usual.problem, usual.device);
    const MeasurementRecord record = race_record(1000 + round);
    (void)opened.put(record);
    const auto texts = texts_of(found_in_store(opened));
    EXPECT_EQ(std::count(texts.begin(), texts.end(), text_of(record)), 1) << "round " << round;
  }
}

TEST_F(StoreTest, DamageInAFileTooLargeToBeLookedAtIsSetAsideWhenItIsMet) {
  fill(500);
  std::string bytes = read_bytes(path_);
  std::mt19937 random(1);
  for (size_t i = 20000; i < 32000; ++i) bytes[i] = static_cast<char>(random());
  write_file(path_, bytes);
  JournalStore opened({.path = path_, .patience = milliseconds(20), .checked_bytes = 10000});
  EXPECT_TRUE(opened.warnings().empty()) << "nobody has looked";
  const MeasurementRecord usual = race_record(1);
  const auto found = opened.find(usual.problem, usual.device);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kParse);
  EXPECT_NE(found.error().message.find("set aside as"), std::string::npos);
  EXPECT_TRUE(opened.put(race_record(1)).ok());
  EXPECT_EQ(found_in_store(opened).size(), 1u);
}

TEST_F(StoreTest, ATruncatedFileIsSetAsideHoweverLargeItIs) {
  fill(500);
  write_file(path_, read_bytes(path_).substr(0, 30000));
  const JournalStore opened({.path = path_, .checked_bytes = 0});
  ASSERT_EQ(opened.warnings().size(), 1u);
  EXPECT_NE(opened.warnings()[0].find("set aside as"), std::string::npos);
}

TEST_F(StoreTest, ASecondDamagedFileGetsANameOfItsOwn) {
  for (int i = 0; i < 3; ++i) {
    write_file(path_, "nonsense");
    (void)store();
  }
  int set_aside = 0;
  for (const std::string& name : files()) set_aside += name.starts_with("journal.db.damaged-");
  EXPECT_EQ(set_aside, 3);
}

TEST_F(StoreTest, DamageThatShowsLaterIsSetAsideToo) {
  std::vector<MeasurementRecord> more_than_is_cached;
  for (int i = 0; i < 20000; ++i) more_than_is_cached.push_back(race_record(i));
  ASSERT_TRUE(open()->put(more_than_is_cached, {}).ok());
  auto opened = store();
  {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    for (int page = 1; page < 20; ++page) {
      file.seekp(page * 4096);
      file << std::string(4096, '\x5a');
    }
  }
  const MeasurementRecord usual = race_record(1);
  const auto found = opened->find(usual.problem, usual.device);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kParse);
  EXPECT_NE(found.error().message.find("set aside as"), std::string::npos);
  EXPECT_TRUE(opened->put(race_record(1)).ok());
  EXPECT_EQ(found_in_store(*opened).size(), 1u);
  EXPECT_EQ(found_in(*open()).size(), 1u);
}

TEST_F(StoreTest, AFileThatIsRemovedMeanwhileIsMadeAgain) {
  auto opened = store();
  ASSERT_TRUE(opened->put(race_record(1)).ok());
  std::filesystem::remove(path_);
  std::filesystem::remove(path_ + "-wal");
  std::filesystem::remove(path_ + "-shm");
  EXPECT_TRUE(opened->put(race_record(2)).ok());
  EXPECT_EQ(texts_of(found_in(*open())), texts_of({race_record(2)}));
}

TEST_F(StoreTest, ANewerVersionIsNotTouchedAndMemoryServes) {
  fill(1);
  ASSERT_TRUE(open()->connection().execute("PRAGMA user_version = 99").ok());
  const std::string before = read_bytes(path_);
  {
    auto opened = store();
    ASSERT_EQ(opened->warnings().size(), 1u);
    EXPECT_NE(opened->warnings()[0].find("version 99"), std::string::npos);
    EXPECT_NE(opened->warnings()[0].find("in memory"), std::string::npos);
    EXPECT_TRUE(opened->put(race_record(7)).ok());
    EXPECT_EQ(texts_of(found_in_store(*opened)), texts_of({race_record(7)}));
  }
  EXPECT_EQ(read_bytes(path_), before);
}

TEST_F(StoreTest, WhatALockHoldsUpIsWrittenLater) {
  auto opened = store(milliseconds(50));
  ASSERT_TRUE(opened->put(race_record(1)).ok());
  auto other = open();
  auto transaction = Transaction::begin(other->connection());
  ASSERT_TRUE(transaction.ok());
  const Status first = opened->put(race_record(2));
  EXPECT_EQ(first.error().code, ErrorCode::kDeadline);
  EXPECT_NE(first.error().message.find("another process"), std::string::npos);
  // It is said once, and costs no more waiting.
  const auto start = std::chrono::steady_clock::now();
  for (int i = 3; i < 100; ++i) EXPECT_TRUE(opened->put(race_record(i)).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1000));
  EXPECT_EQ(found_in_store(*opened).size(), 99u);

  ASSERT_TRUE(transaction->commit().ok());
  std::this_thread::sleep_for(milliseconds(60));
  ASSERT_TRUE(opened->put(race_record(100)).ok());
  EXPECT_EQ(found_in(*other).size(), 100u);
}

TEST_F(StoreTest, WhatIsStillInMemoryIsWrittenInTheEnd) {
  auto opened = store();
  auto other = open();
  {
    auto transaction = Transaction::begin(other->connection());
    ASSERT_TRUE(transaction.ok());
    EXPECT_FALSE(opened->put(race_record(1)).ok());
    EXPECT_TRUE(opened->put_run(sample_run()).ok());
  }
  EXPECT_EQ(found_in(*other).size(), 0u);
  opened.reset();
  EXPECT_EQ(found_in(*other).size(), 1u);
  EXPECT_EQ(*other->connection().number("SELECT count(*) FROM plan"), 1);
}

TEST_F(StoreTest, WhatIsGatheredIsFoundAtOnceAndWrittenSoon) {
  JournalStore gathering({.path = path_, .gather = milliseconds(200)});
  auto other = open();
  ASSERT_TRUE(gathering.put(race_record(1)).ok());
  ASSERT_TRUE(gathering.put(race_record(2)).ok());
  EXPECT_EQ(found_in_store(gathering).size(), 2u);
  EXPECT_EQ(found_in(*other).size(), 0u);
  // Nobody puts any more, as when a kernel hangs: it is written all the same.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (found_in(*other).size() < 2 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(found_in(*other).size(), 2u);
  // A plan does not wait, nor does what came before it.
  ASSERT_TRUE(gathering.put(race_record(3)).ok());
  ASSERT_TRUE(gathering.put_run(sample_run()).ok());
  EXPECT_EQ(found_in(*other).size(), 3u);
  EXPECT_EQ(texts_of(runs_in(*other)), texts_of({sample_run()}));
}

TEST_F(StoreTest, WhatIsGatheredIsWrittenInTheEnd) {
  {
    JournalStore gathering({.path = path_, .gather = milliseconds(60000)});
    ASSERT_TRUE(gathering.put(race_record(1)).ok());
  }
  EXPECT_EQ(found_in(*open()).size(), 1u);
}

// Said once, by the next put, wherever it happened.
TEST_F(StoreTest, WhatGoesWrongInTheBackgroundIsSaidByTheNextPut) {
  JournalStore gathering({.path = path_, .patience = milliseconds(1), .gather = milliseconds(50)});
  auto other = open();
  auto transaction = Transaction::begin(other->connection());
  ASSERT_TRUE(transaction.ok());
  ASSERT_TRUE(gathering.put(race_record(1)).ok());
  std::this_thread::sleep_for(milliseconds(500));
  int said = 0;
  for (int i = 2; i < 10; ++i) said += !gathering.put(race_record(i)).ok();
  EXPECT_EQ(said, 1);
}

TEST_F(StoreTest, RunsThatAreOnlyInMemoryAreFound) {
  fill(1);
  ASSERT_TRUE(open()->connection().execute("PRAGMA user_version = 99").ok());
  JournalStore memory({.path = path_});
  TuneRun run = sample_run();
  run.seconds = 1;
  ASSERT_TRUE(memory.put_run(run).ok());
  ASSERT_TRUE(memory.put_run(sample_run()).ok());
  const auto found = memory.find_runs(run.problem, run.device);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(texts_of(*found), texts_of({sample_run()}));
}

TEST_F(StoreTest, ALockedFileIsReadAllTheSame) {
  fill(3);
  auto other = open();
  auto transaction = Transaction::begin(other->connection());
  auto opened = store();
  EXPECT_TRUE(opened->warnings().empty());
  EXPECT_EQ(found_in_store(*opened).size(), 3u);
}

TEST_F(StoreTest, TwoWhoFindTheSameDamageSetAsideOneFile) {
  write_file(path_, "nonsense");
  const FileIdentity damaged = *identity_of(path_);
  auto first = store();
  ASSERT_TRUE(first->put(race_record(1)).ok());
  const auto late = set_aside(path_, damaged);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(*late, "");
  EXPECT_EQ(found_in(*open()).size(), 1u);
}

class StoreThreads : public StoreTest {};

TEST_F(StoreThreads, ThreadsShareAStoreAndTwoStoresShareAFile) {
  auto first = std::make_unique<JournalStore>(JournalStore::Options{.path = path_});
  auto second = std::make_unique<JournalStore>(JournalStore::Options{.path = path_});
  constexpr int kEach = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      JournalStore& store = t % 2 == 0 ? *first : *second;
      for (int i = 0; i < kEach; ++i) {
        EXPECT_TRUE(store.put(race_record(t * kEach + i)).ok());
        if (i % 25 == 0) (void)found_in_store(store);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found_in(*open()).size(), 4u * kEach);
}

}  // namespace
}  // namespace moetune::journal

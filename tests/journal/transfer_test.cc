#include "journal/transfer.h"

#include <limits>
#include <random>
#include <sstream>

#include "journal/journal_testing.h"
#include "journal/json_lines.h"

namespace moetune::journal {
namespace {

using namespace testing;  // NOLINT: the records

class TransferTest : public FolderTest {
 protected:
  static std::string exported(Database& database, const Filter& filter = {}) {
    std::string lines;
    const auto done = export_lines(database, filter, [&](std::string_view line) {
      lines.append(line).append("\n");
      return Status();
    });
    EXPECT_TRUE(done.ok()) << done.error().message;
    return lines;
  }

  static Imported imported(Database& database, const std::string& text, bool strict = false) {
    std::istringstream lines(text);
    auto done = import_lines(database, lines, strict);
    EXPECT_TRUE(done.ok()) << done.error().message;
    return done.ok() ? std::move(done).value() : Imported{};
  }

  std::unique_ptr<Database> filled() {
    auto database = open();
    put(*database, race_record(1));
    put(*database, rejected_record(2));
    put(*database, compared_record(3));
    put_plan(*database, sample_plan(), {"test 2", {}});
    EXPECT_TRUE(database->put_run(sample_run(), {"test 3", {}}).ok());
    return database;
  }

  std::unique_ptr<Database> other() {
    auto database = Database::open(folder_ / "other.db", {.create = true});
    EXPECT_TRUE(database.ok());
    return std::move(database).value();
  }
};

TEST_F(TransferTest, AnExportThatIsImportedIsTheSameJournal) {
  auto from = filled();
  auto to = other();
  const std::string lines = exported(*from);
  const Imported result = imported(*to, lines);
  EXPECT_EQ(result.measurements, 3);
  EXPECT_EQ(result.plans, 2);
  EXPECT_EQ(result.runs, 1);
  EXPECT_EQ(result.bad_lines, 0);
  EXPECT_EQ(texts_of(runs_in(*to)), texts_of({sample_run()}));
  EXPECT_EQ(texts_of(found_in(*to)), texts_of(found_in(*from)));
  EXPECT_EQ(exported(*to), lines);
}

TEST_F(TransferTest, WhatIsThereIsNotTakenTwice) {
  auto database = filled();
  const std::string lines = exported(*database);
  const Imported again = imported(*database, lines + lines);
  EXPECT_EQ(again.measurements + again.plans + again.runs, 0);
  EXPECT_EQ(again.already_there, 12);
  EXPECT_EQ(exported(*database), lines);
}

// An export taken while a run goes on, and one taken later.
TEST_F(TransferTest, ARunThatHasComeFurtherElsewhereIsBroughtUpToDate) {
  auto from = open();
  auto to = other();
  TuneRun run = sample_run();
  run.plan.reset();
  run.budget_s = 0;
  run.seconds = 20;
  ASSERT_TRUE(from->put_run(run, {}).ok());
  const std::string early = exported(*from);
  EXPECT_EQ(imported(*to, early).runs, 1);
  run = sample_run();
  ASSERT_TRUE(from->put_run(run, {}).ok());
  EXPECT_EQ(imported(*to, exported(*from)).runs, 1);
  EXPECT_EQ(texts_of(runs_in(*to)), texts_of({run}));
  EXPECT_EQ(imported(*to, early).already_there, 1);
  EXPECT_EQ(texts_of(runs_in(*to)), texts_of({run}));
}

TEST_F(TransferTest, ARunThatMakesNoSenseIsNamedByTheFieldThatIsWrong) {
  auto database = open();
  ASSERT_TRUE(database->put_run(sample_run(), {}).ok());
  std::string line;
  ASSERT_TRUE(visit_runs(*database, {}, [&](const RunRecord& record, const Origin& origin) {
                line = to_line(record, origin);
                return Status();
              }).ok());
  ASSERT_TRUE(parse_line(line).ok());
  const auto refused = [&](const std::string& from, const std::string& to, const char* field) {
    const size_t at = line.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    const auto entry = parse_line(std::string(line).replace(at, from.size(), to));
    ASSERT_FALSE(entry.ok()) << to;
    EXPECT_NE(entry.error().message.find(field), std::string::npos) << entry.error().message;
  };
  refused("\"id\":7", "\"id\":0", "id");
  refused("\"buckets\":[1,8]", "\"buckets\":[0,8]", "buckets");
  refused("\"buckets\":[1,8]", "\"buckets\":8", "buckets");
  refused("[\"cpu.packed@3\",\"cpu.plain@1\"]", "[3]", "runners");
  refused("\"seconds\":59.5", "\"seconds\":-1", "seconds");
  refused("\"problem\":", "\"problems\":", "problem");
}

TEST_F(TransferTest, AnExportHoldsWhatTheFilterSays) {
  auto database = filled();
  MeasurementRecord elsewhere = race_record(9);
  elsewhere.device = "cuda sm=90";
  put(*database, elsewhere);
  const std::string lines = exported(*database, {.device = "sm=90"});
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1);
  EXPECT_NE(lines.find("cuda sm=90"), std::string::npos);
}

TEST_F(TransferTest, BadLinesAreNamedAndTheGoodOnesTaken) {
  const std::string good = to_line(race_record(1), {}) + "\r\n\n" + to_line(race_record(2), {});
  const std::string text = "{\n" + good + "\n{\"type\": \"measurement\"}\n[]\n{\"type\":\"x\"}";
  const Imported result = imported(*open(), text);
  EXPECT_EQ(result.measurements, 2);
  ASSERT_EQ(result.bad_lines, 4);
  EXPECT_EQ(result.bad[0].number, 1);
  EXPECT_EQ(result.bad[1].number, 5);
  EXPECT_NE(result.bad[1].message.find("problem: missing"), std::string::npos);
  EXPECT_EQ(result.bad[2].number, 6);
  EXPECT_EQ(result.bad[3].number, 7);
}

TEST_F(TransferTest, AStrictImportTakesAllOrNothing) {
  auto database = filled();
  const std::string before = exported(*database);
  const std::string good = to_line(race_record(7), {}) + "\n" + to_line(race_record(8), {}) + "\n";
  const Imported refused = imported(*database, good + "x\n" + good, /*strict=*/true);
  EXPECT_EQ(refused.bad_lines, 1);
  EXPECT_EQ(refused.measurements, 0);
  EXPECT_EQ(exported(*database), before);
  EXPECT_EQ(imported(*database, good, /*strict=*/true).measurements, 2);
  put(*database, race_record(7));  // Nothing wrong is remembered from what was rolled back.
  EXPECT_EQ(found_in(*database).size(), 6u);
}

TEST_F(TransferTest, AnEndlessLineIsBadAndDoesNotFillTheMemory) {
  std::string text(kMaxLineBytes + 1, '[');
  text += "\n" + to_line(race_record(1), {});
  const Imported result = imported(*open(), text);
  EXPECT_EQ(result.measurements, 1);
  ASSERT_EQ(result.bad_lines, 1);
  EXPECT_NE(result.bad[0].message.find("longer than"), std::string::npos);
}

TEST_F(TransferTest, AnOpenIntervalSurvives) {
  MeasurementRecord record = compared_record(1);
  record.versus->low = 0;
  record.versus->high = std::numeric_limits<double>::infinity();
  const auto entry = parse_line(to_line(record, {}));
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(text_of(std::get<MeasurementRecord>(entry->record)), text_of(record));
}

TEST_F(TransferTest, UnknownFieldsAreIgnored) {
  std::string line = to_line(compared_record(1), {});
  line.insert(1, R"("humidity": {"percent": [1, 2]}, )");
  line.insert(line.find("\"against\""), R"("mood": null, )");
  const auto entry = parse_line(line);
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(text_of(std::get<MeasurementRecord>(entry->record)), text_of(compared_record(1)));
}

TEST_F(TransferTest, ValuesThatMakeNoSenseAreRefusedByName) {
  const auto refused = [](const std::string& from, const std::string& to, const char* field) {
    std::string line = to_line(compared_record(1), {});
    const size_t at = line.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    const auto entry = parse_line(line.replace(at, from.size(), to));
    ASSERT_FALSE(entry.ok()) << to;
    EXPECT_EQ(entry.error().code, ErrorCode::kParse);
    EXPECT_NE(entry.error().message.find(field), std::string::npos) << entry.error().message;
  };
  refused("\"tokens\":8", "\"tokens\":0", "tokens");
  refused("\"tokens\":8", "\"tokens\":8.5", "tokens");
  refused("\"seed\":0", "\"seed\":-1", "seed");
  refused("\"scale\":\"subset\"", "\"scale\":\"some\"", "scale");
  refused("\"stage\":-1", "\"stage\":-2", "stage");
  refused("\"phase\":\"confirm\"", "\"phase\":\"\"", "phase");
  refused("\"median_us\":100.0", "\"median_us\":-100", "time.median_us");
  refused("\"median_us\":100.0", "\"median_us\":0", "time.median_us");
  refused("\"median_us\":100.0", "\"median_us\":\"fast\"", "time.median_us");
  refused("\"samples\":3", "\"samples\":-3", "time.samples");
  refused("\"outcome\":\"better\"", "\"outcome\":\"worse\"", "versus.outcome");
  refused("\"speedup\":1.2", "\"speedup\":0", "versus.speedup");
  refused("\"speedup_low\":1.15", "\"speedup_low\":2", "versus.speedup_low");
  refused("\"version\":3", "\"version\":30000000000", "version");
  refused("\"tile\":1", "\"tile\":1.5", "stages[0].tactic.tile");
  refused("\"unix_ms\":17", "\"unix_ms\":-17", "unix_ms");
  refused("\"unix_ms\":17", "\"unix_ms\":100017", "unix_ms");
  refused("\"problem\":\"fused_moe hidden=64\"", "\"problem\":\"\"", "problem");
}

// A filter takes what is earlier than a time; there is none after the last one.
TEST_F(TransferTest, WhateverDateIsTakenCanBeExportedAndPruned) {
  auto database = open();
  MeasurementRecord last = race_record(1);
  last.unix_ms = 253402300799999;  // The last millisecond of the year 9999.
  MeasurementRecord beyond = race_record(2);
  beyond.unix_ms = std::numeric_limits<int64_t>::max();
  RunRecord run{sample_run(), 1700000000000};
  run.run.unix_ms = beyond.unix_ms;
  const std::string good = to_line(last, {}) + "\n";
  const Imported result = imported(*database, good + to_line(beyond, {}) + "\n" + to_line(run, {}));
  EXPECT_EQ(result.measurements, 1);
  EXPECT_EQ(result.bad_lines, 2);
  EXPECT_EQ(exported(*database), good);
  const auto pruned = prune(*database, {});
  ASSERT_TRUE(pruned.ok()) << pruned.error().message;
  EXPECT_EQ(pruned->measurements, 1);
  EXPECT_EQ(found_in(*database).size(), 0u);
}

// Whatever comes in: an error or an entry that goes out and comes in again the same.
TEST_F(TransferTest, RandomChangesToLinesNeverGetThroughHalf) {
  const std::vector<std::string> seeds = {
      to_line(race_record(1), {"p", {{"a", "b"}}}), to_line(rejected_record(2), {}),
      to_line(compared_record(3), {}), to_line(sample_plan(), {}),
      to_line(RunRecord{sample_run(), 1700000000000}, {})};
  constexpr std::string_view kBytes = "{}[]\",:\\0123456789.eE+-nulltruefalse \t\x01\x7f\xc3\xff";
  std::mt19937 random(20);
  int good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string line = seeds[random() % seeds.size()];
    for (uint32_t changes = 1 + random() % 4; changes > 0 && !line.empty(); --changes) {
      const size_t at = random() % line.size();
      switch (random() % 5) {
        case 0: line[at] = static_cast<char>(random()); break;
        case 1: line[at] = kBytes[random() % kBytes.size()]; break;
        case 2: line.erase(at, 1 + random() % 8); break;
        case 3: line.insert(at, line.substr(random() % line.size(), random() % 40)); break;
        default: line.resize(at);
      }
    }
    const auto entry = parse_line(line);
    if (!entry.ok()) {
      EXPECT_EQ(entry.error().code, ErrorCode::kParse);
      continue;
    }
    ++good;
    const std::string out = std::visit(
        [&](const auto& record) { return to_line(record, entry->origin); }, entry->record);
    const auto again = parse_line(out);
    ASSERT_TRUE(again.ok()) << out << "\n" << again.error().message;
    EXPECT_EQ(std::visit([&](const auto& record) { return to_line(record, again->origin); },
                         again->record),
              out);
  }
  EXPECT_GT(good, 1000);
}

}  // namespace
}  // namespace moetune::journal

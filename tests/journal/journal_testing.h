// What the tests of the journal share: a folder of their own, and records to put in.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "journal/database.h"
#include "journal/entry.h"
#include "moetune/measuring.h"

namespace moetune::journal::testing {

/// A folder that is there as long as the test runs.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    std::string name = ::testing::TempDir() + "moetune-journal-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    folder_ = name;
    path_ = name + "/journal.db";
  }
  ~FolderTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  std::unique_ptr<Database> open() {
    auto database = Database::open(path_, {.create = true});
    EXPECT_TRUE(database.ok()) << database.error().message;
    return database.ok() ? std::move(database).value() : nullptr;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::filesystem::path folder_;
  std::string path_;
};

inline Candidate sample_candidate(int64_t tile) {
  return {"cpu.packed",
          3,
          "separate",
          {{"gemm1", Tactic({{"tile", tile}, {"order", std::string("by 'rows'")}})},
           {"gemm2", Tactic({{"tile", int64_t{8}}})}}};
}

/// A time in a race: the usual record.
inline MeasurementRecord race_record(int64_t tile, double us = 100) {
  MeasurementRecord record;
  record.problem = "fused_moe hidden=64";
  record.device = "cpu cores=2 isa=avx2";
  record.candidate = sample_candidate(tile);
  record.layout = "panels16";
  record.what = {8, "uniform", 0};
  record.scale = Scale::kSubset;
  record.stage = 1;
  record.time = {us, us * 0.9, us * 0.95, us * 1.1, 3};
  record.state = {3500, uint64_t{1} << 63, 71, 65.5};
  record.phase = "race";
  record.unix_ms = 1700000000000 + tile;
  return record;
}

inline MeasurementRecord rejected_record(int64_t tile) {
  MeasurementRecord record = race_record(tile);
  record.time = {};
  record.stage = -1;
  record.scale = Scale::kFull;
  record.rejected = "row 17: not finite at column 3";
  record.rejected_as = ErrorCode::kWrongResult;
  return record;
}

inline MeasurementRecord compared_record(int64_t tile) {
  MeasurementRecord record = race_record(tile);
  record.stage = -1;
  record.phase = "confirm";
  record.versus = Comparison{
      sample_candidate(1).text(), 3, {120, 110, 115, 130, 40}, 1.2, 1.15, 1.25, 10, "better"};
  return record;
}

/// All fields as text: equal exactly where the records are.
inline std::string text_of(const MeasurementRecord& r) {
  std::ostringstream text;
  const auto time = [&](const TimeSummary& t) {
    text << ' ' << t.median_us << ' ' << t.min_us << ' ' << t.q1_us << ' ' << t.q3_us << ' '
         << t.samples << '\n';
  };
  text.precision(17);
  text << r.problem << '\n'
       << r.device << '\n'
       << r.candidate.text() << '@' << r.candidate.runner_version << '\n'
       << r.layout << '\n'
       << r.what.tokens << ' ' << r.what.workload << ' ' << r.what.seed << ' '
       << static_cast<int>(r.scale) << ' ' << r.stage << ' ' << r.phase << ' ' << r.unix_ms;
  time(r.time);
  if (!r.rejected.empty()) text << r.rejected << ' ' << to_string(r.rejected_as) << '\n';
  text << r.state.clock_mhz << ' ' << r.state.throttle_reasons << ' ' << r.state.temperature_c
       << ' ' << r.state.power_w << '\n';
  if (r.versus) {
    text << r.versus->against << '@' << r.versus->against_version << ' ' << r.versus->speedup << ' '
         << r.versus->low << ' ' << r.versus->high << ' ' << r.versus->rounds << ' '
         << r.versus->outcome;
    time(r.versus->against_time);
  }
  return text.str();
}

inline std::vector<std::string> texts_of(const std::vector<MeasurementRecord>& records) {
  std::vector<std::string> texts;
  for (const MeasurementRecord& record : records) texts.push_back(text_of(record));
  return texts;
}

/// What a database holds of the usual problem.
inline std::vector<MeasurementRecord> found_in(Database& database) {
  const MeasurementRecord usual = race_record(1);
  auto found = database.find(usual.problem, usual.device);
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? std::move(found).value() : std::vector<MeasurementRecord>{};
}

inline void put(Database& database, const MeasurementRecord& record) {
  const Status status = database.put({&record, 1}, {"test 1", {{"compiler", "gcc"}}});
  EXPECT_TRUE(status.ok()) << status.error().message;
}

inline PlanRecord sample_plan() {
  PlanRecord record;
  record.device = {"cpu", "A processor", {{"isa", "avx2"}, {"cores", "2"}}, {{"compiler", "gcc"}}};
  record.plan.problem = {"fused_moe", {{"hidden", "64"}}};
  record.plan.runner = "cpu.packed";
  record.plan.layout = "panels16";
  record.plan.max_tokens = 8;
  Decision decision;
  decision.tokens = 8;
  decision.from = 1;
  decision.to = 8;
  decision.candidate = sample_candidate(16);
  decision.is_default = false;
  decision.evidence.note = "tested";
  record.plan.decisions = {decision};
  record.unix_ms = 1700000000000;
  return record;
}

/// A run that ended with sample_plan().
inline TuneRun sample_run(int64_t id = 7) {
  const PlanRecord plan = sample_plan();
  TuneRun run;
  run.id = id;
  run.problem = plan.plan.problem.key();
  run.device = plan.device.key();
  run.properties = plan.device;
  run.terms = "veto=zipf:1.2";
  run.runners = {"cpu.packed@3", "cpu.plain@1"};
  run.buckets = {1, 8};
  run.seconds = 59.5;
  run.budget_s = 60;
  run.plan = plan.plan;
  run.unix_ms = plan.unix_ms;
  return run;
}

/// All fields but the properties, as text.
inline std::string text_of(const TuneRun& run) {
  std::ostringstream text;
  text << run.id << '\n'
       << run.problem << '\n'
       << run.device << '\n'
       << run.workload << ' ' << run.seed << ' ' << run.terms << ' ' << run.seconds << ' '
       << run.budget_s << ' ' << run.unix_ms << ' ' << (run.plan ? "with a plan" : "");
  for (const std::string& runner : run.runners) text << ' ' << runner;
  for (int64_t bucket : run.buckets) text << ' ' << bucket;
  return text.str();
}

inline std::vector<std::string> texts_of(const std::vector<TuneRun>& runs) {
  std::vector<std::string> texts;
  for (const TuneRun& run : runs) texts.push_back(text_of(run));
  return texts;
}

/// What a database holds of runs like sample_run().
inline std::vector<TuneRun> runs_in(Database& database) {
  const TuneRun usual = sample_run();
  auto found = database.find_runs(usual.problem, usual.device);
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? std::move(found).value() : std::vector<TuneRun>{};
}

/// A plan whose run is not known, as version 1 left them.
inline void put_plan(Database& database, const PlanRecord& record, const Origin& origin = {}) {
  auto transaction = Transaction::begin(database.connection());
  ASSERT_TRUE(transaction.ok()) << transaction.error().message;
  const auto merged = database.merge_plan(record, origin);
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  ASSERT_TRUE(transaction->commit().ok());
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace moetune::journal::testing

// A damaged journal file. Input: "=" and the file's bytes, or edits of a whole journal, four bytes
// each (three of position, one to be written there; position 0xffffff cuts the file at 256 times
// the byte). Whatever was done to it, tuning goes on, and `moetune journal` ends with an error at
// worst.
#include <fstream>
#include <iterator>
#include <sstream>

#include "fuzz/fuzz_target.h"
#include "fuzz/scratch_folder.h"
#include "journal/contents.h"
#include "journal/store.h"
#include "journal/transfer.h"

namespace moetune::fuzz {
namespace {

using namespace journal;

constexpr const char* kLines =
    R"({"type":"measurement","problem":"op a=1","device":"cpu cores=2","runner":"r","version":1,"scheme":"s","stages":[{"name":"main","tactic":{"tile":4}}],"layout":"l","tokens":8,"phase":"race","time":{"median_us":5,"min_us":4,"q1_us":4,"q3_us":6,"samples":3},"unix_ms":1700000000000,"program":"p","toolchain":{"gcc":"12"}}
{"type":"measurement","problem":"op a=1","device":"cpu cores=2","runner":"r","version":1,"scheme":"s","stages":[],"layout":"l","tokens":8,"phase":"confirm","rejected":"wrong","rejected_as":"wrong_result","versus":{"against":"r/s","against_time":{"samples":3},"outcome":"better"},"unix_ms":1700000000001}
{"type":"plan","device":{"kind":"cpu","identity":{"cores":"2"}},"plan":{"problem":{"op":"op","attributes":{"a":"1"}},"runner":"r","layout":"l","max_tokens":8,"decisions":[{"tokens":8,"from":1,"to":8,"default":true,"runner":"r","version":1,"scheme":"s","stages":[]}]},"unix_ms":1700000000002}
{"type":"run","id":7,"problem":"op a=1","device":"cpu cores=2","runners":["r@1"],"buckets":[8],"seconds":5,"budget_s":60,"plan_unix_ms":1700000000002,"unix_ms":1700000000000}
)";

const std::string kProblem = "op a=1";
const std::string kDevice = "cpu cores=2";

std::string make_whole_file(const std::string& path) {
  {
    auto database = Database::open(path, {.create = true});
    require(database.ok(), "a journal can be made");
    std::istringstream lines(kLines);
    const auto taken = import_lines(**database, lines, true);
    require(taken.ok() && taken->bad_lines == 0, "the lines are good",
            taken.ok() && !taken->bad.empty() ? taken->bad[0].message : "");
    require((*database)->connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").ok(),
            "checkpoint");
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string edited(std::string file, std::string_view edits) {
  constexpr size_t kCut = 0xffffff;
  while (edits.size() >= 4) {
    size_t position = take_byte(edits);
    position = position << 8 | take_byte(edits);
    position = position << 8 | take_byte(edits);
    const unsigned char byte = take_byte(edits);
    if (position == kCut) {
      file.resize(std::min<size_t>(file.size(), size_t{256} * byte));
    } else if (!file.empty()) {
      file[position % file.size()] = static_cast<char>(byte);
    }
  }
  return file;
}

MeasurementRecord new_record() {
  MeasurementRecord record;
  record.problem = kProblem;
  record.device = kDevice;
  record.candidate = {"r", 1, "s", {}};
  record.what = {16, "uniform", 0};
  record.time = {1, 1, 1, 1, 1};
  record.phase = "race";
  record.unix_ms = 1700000000003;
  return record;
}

// As `moetune journal` opens it.
void read(const std::string& path) {
  auto database = Database::open_to_read(path, std::chrono::milliseconds(0));
  if (!database.ok()) return;
  (void)groups(**database, {});
  (void)(*database)->find(kProblem, kDevice);
  (void)(*database)->find_runs(kProblem, kDevice);
  (void)export_lines(**database, {}, [](std::string_view) { return Status(); });
}

// As `moetune tune` uses it.
void tune(const std::string& path) {
  JournalStore store(
      {.path = path, .origin = {"fuzz", {}}, .patience = std::chrono::milliseconds(0)});
  (void)store.find_runs(kProblem, kDevice);
  (void)store.find(kProblem, kDevice);
  (void)store.find_ceiling(kDevice, "all");
  TuneRun run;
  run.id = 8;
  run.problem = kProblem;
  run.device = kDevice;
  run.buckets = {8};
  (void)store.put_run(run);
  const Status put = store.put(new_record());
  const auto found = store.find(kProblem, kDevice);
  require(!put.ok() || !found.ok() || !found->empty(), "what was put is found");
}

void prune_all(const std::string& path) {
  auto database = Database::open(path, {.patience = std::chrono::milliseconds(0)});
  if (database.ok()) (void)prune(**database, {});
}

void run(std::string_view input) {
  static const ScratchFolder folder;
  static const std::string path = folder.path() / "journal.db";
  static const std::string whole = make_whole_file(path);
  const bool is_whole = input.starts_with('=');
  if (is_whole) input.remove_prefix(1);
  const std::string content = is_whole ? std::string(input) : edited(whole, input);
  folder.clear();
  std::ofstream(path, std::ios::binary) << content;
  read(path);
  tune(path);
  prune_all(path);
}

const Register registered("journal_file", run);

}  // namespace
}  // namespace moetune::fuzz

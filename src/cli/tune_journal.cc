#include "cli/tune_journal.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "cli/version.h"
#include "journal/place.h"

namespace moetune::cli {
namespace {

// With calls of 2 us a sample takes 0.2 ms, and a transaction for each would be a tenth of that.
constexpr std::chrono::milliseconds kGather{250};
constexpr size_t kMostTraceBytes = size_t{32} << 20;

/// A trace is named by its file, whose content may be another one tomorrow. In the journal its name
/// has the content's hash with it, so that only what was measured on the same counts is taken up.
class TraceStore final : public MeasurementStore {
 public:
  TraceStore(MeasurementStore& store, std::string workload, uint64_t hash)
      : store_(store), workload_(std::move(workload)) {
    stored_ = fmt::format("{}#{:016x}", workload_, hash);
  }

  Status put(const MeasurementRecord& record) override {
    if (record.what.workload != workload_) return store_.put(record);
    MeasurementRecord renamed = record;
    renamed.what.workload = stored_;
    return store_.put(renamed);
  }

  Result<std::vector<MeasurementRecord>> find(const std::string& problem,
                                              const std::string& device) override {
    MOETUNE_ASSIGN_OR_RETURN(std::vector<MeasurementRecord> records, store_.find(problem, device));
    for (MeasurementRecord& record : records) {
      if (record.what.workload == stored_) record.what.workload = workload_;
    }
    return records;
  }

  Status put_run(const TuneRun& run) override {
    TuneRun renamed = run;
    if (renamed.workload == workload_) renamed.workload = stored_;
    return store_.put_run(renamed);
  }

  Result<std::vector<TuneRun>> find_runs(const std::string& problem,
                                         const std::string& device) override {
    MOETUNE_ASSIGN_OR_RETURN(std::vector<TuneRun> runs, store_.find_runs(problem, device));
    for (TuneRun& run : runs) {
      if (run.workload == stored_) run.workload = workload_;
    }
    return runs;
  }

 private:
  MeasurementStore& store_;
  std::string workload_;
  std::string stored_;
};

}  // namespace

void TuneJournal::declare(Flags& flags) {
  flags.value("--journal", "FILE", &path_,
              "Where every measurement is kept, and taken up again; default: this user's");
  flags.toggle("--no-journal", &off_, "Keep no measurements, and take none up");
}

Status TuneJournal::open(const std::string& workload, const DeviceProperties& device,
                         Output& output) {
  const bool was_named = !path_.empty();
  if (off_ && was_named) {
    return Error{ErrorCode::kInvalidArgument, "--journal and --no-journal contradict each other",
                 "leave one out"};
  }
  if (off_) return {};
  if (!was_named) path_ = journal::default_path().value_or("");
  if (path_.empty()) {
    output.note("warning: no place for a journal: neither XDG_CACHE_HOME nor HOME is set");
    return {};
  }
  if (was_named) {
    const Status place = journal::check_place(path_, /*may_be_missing=*/true);
    const bool is_typing_error = !place.ok() && (place.error().code == ErrorCode::kNotFound ||
                                                 place.error().code == ErrorCode::kInvalidArgument);
    if (is_typing_error) return place;
  } else if (Status made = make_private_folders(parent_folder(path_)); !made.ok()) {
    output.note(fmt::format("warning: no journal: {}", made.error().message));
    path_.clear();
    return {};
  }
  store_ = std::make_unique<journal::JournalStore>(journal::JournalStore::Options{
      .path = path_,
      .origin = {.program = fmt::format("moetune {}", version()), .toolchain = device.toolchain},
      .gather = kGather});
  for (const std::string& warning : store_->warnings())
    output.note(fmt::format("warning: {}", warning));
  constexpr std::string_view kTrace = "trace:";
  if (workload.starts_with(kTrace)) {
    MOETUNE_ASSIGN_OR_RETURN(const std::string content,
                             read_file(workload.substr(kTrace.size()), kMostTraceBytes));
    traces_ = std::make_unique<TraceStore>(*store_, workload, hash64(content));
  }
  return {};
}

}  // namespace moetune::cli

#include "journal/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace moetune::journal {
namespace {

constexpr const char* kInMemory = "what is measured is kept in memory until this process ends";

std::string text_of(const Error& error) {
  return error.hint.empty() ? error.message : fmt::format("{} ({})", error.message, error.hint);
}

}  // namespace

JournalStore::JournalStore(Options options) : options_(std::move(options)) {
  if (std::string warning = open(); !warning.empty()) warnings_.push_back(std::move(warning));
  if (options_.gather.count() > 0 && mode_ == Mode::kWrite)
    writer_ = std::thread([this] { write_what_waits_long(); });
}

JournalStore::~JournalStore() {
  if (writer_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    changed_.notify_one();
    writer_.join();
  }
  if (database_ == nullptr || mode_ != Mode::kWrite || !has_pending()) return;
  if (is_waiting_) database_->set_patience(std::chrono::milliseconds(0));
  (void)write_pending();
}

Database::Options JournalStore::database_options() const {
  return {.create = true, .patience = options_.patience, .checked_bytes = options_.checked_bytes};
}

std::string JournalStore::open() {
  database_.reset();
  mode_ = Mode::kMemory;
  auto opened = Database::open(options_.path, database_options());
  if (opened.ok()) {
    database_ = std::move(opened).value();
    mode_ = Mode::kWrite;
    return {};
  }
  switch (opened.error().code) {
    case ErrorCode::kParse: return open_after_damage(opened.error());
    case ErrorCode::kIo:
    case ErrorCode::kDeadline: return open_to_read(opened.error());
    default: return fmt::format("{}; {}", text_of(opened.error()), kInMemory);
  }
}

std::string JournalStore::open_after_damage(const Error& damage) {
  const std::optional<FileIdentity> damaged = identity_of(options_.path);
  Result<std::string> aside = std::string();
  if (damaged) aside = set_aside(options_.path, *damaged);
  if (!aside.ok())
    return fmt::format("{}; {}; {}", damage.message, text_of(aside.error()), kInMemory);
  auto fresh = Database::open(options_.path, database_options());
  if (!fresh.ok()) return fmt::format("{}; {}", text_of(fresh.error()), kInMemory);
  database_ = std::move(fresh).value();
  mode_ = Mode::kWrite;
  if (aside->empty()) return {};
  return fmt::format("{}; it was set aside as {}, and a new one is begun", damage.message, *aside);
}

std::string JournalStore::open_to_read(const Error& refused) {
  auto opened = Database::open_to_read(options_.path, options_.patience, options_.checked_bytes);
  if (!opened.ok()) return fmt::format("{}; {}", text_of(refused), kInMemory);
  database_ = std::move(opened).value();
  mode_ = Mode::kRead;
  return fmt::format("{}; what is in it is used, and {}", text_of(refused), kInMemory);
}

Status JournalStore::put(const MeasurementRecord& record) {
  const std::lock_guard lock(mutex_);
  const bool is_first = !has_pending();
  pending_.push_back(record);
  return write_soon(is_first, /*at_once=*/false);
}

Status JournalStore::put_run(const TuneRun& run) {
  const std::lock_guard lock(mutex_);
  const bool is_first = !has_pending();
  std::erase_if(pending_runs_, [&run](const TuneRun& earlier) { return earlier.id == run.id; });
  pending_runs_.push_back(run);
  return write_soon(is_first, /*at_once=*/run.plan.has_value());
}

Result<std::vector<MeasurementRecord>> JournalStore::find(const std::string& problem,
                                                          const std::string& device) {
  const std::lock_guard lock(mutex_);
  std::vector<MeasurementRecord> records;
  if (database_ != nullptr) {
    auto found = database_->find(problem, device);
    if (!found.ok() && found.error().code == ErrorCode::kParse) return damaged(found.error());
    if (!found.ok()) return std::move(found).error();
    records = std::move(found).value();
  }
  for (const MeasurementRecord& record : pending_) {
    if (record.problem == problem && record.device == device) records.push_back(record);
  }
  return records;
}

Result<std::vector<TuneRun>> JournalStore::find_runs(const std::string& problem,
                                                     const std::string& device) {
  const std::lock_guard lock(mutex_);
  std::vector<TuneRun> runs;
  if (database_ != nullptr) {
    auto found = database_->find_runs(problem, device);
    if (!found.ok() && found.error().code == ErrorCode::kParse) return damaged(found.error());
    if (!found.ok()) return std::move(found).error();
    runs = std::move(found).value();
  }
  for (const TuneRun& run : pending_runs_) {
    std::erase_if(runs, [&run](const TuneRun& earlier) { return earlier.id == run.id; });
    if (run.problem == problem && run.device == device) runs.push_back(run);
  }
  std::stable_partition(runs.begin(), runs.end(), [](const TuneRun& r) { return !r.plan; });
  return runs;
}

std::optional<CeilingRecord> JournalStore::find_ceiling(const std::string& device,
                                                        const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (database_ == nullptr) return std::nullopt;
  auto found = database_->find_ceiling(device, what, options_.origin);
  return found.ok() ? std::move(found).value() : std::nullopt;
}

void JournalStore::put_ceiling(const CeilingRecord& record) {
  const std::lock_guard lock(mutex_);
  if (mode_ == Mode::kWrite && !is_waiting_) (void)database_->put_ceiling(record, options_.origin);
}

Status JournalStore::write_soon(bool is_first, bool at_once) {
  const Clock::time_point now = Clock::now();
  if (is_first) pending_since_ = now;
  Status status = std::exchange(untold_, {});
  if (at_once || now - pending_since_ >= options_.gather) {
    Status written = flush();
    return status.ok() ? written : status;
  }
  if (is_first) changed_.notify_one();
  return status;
}

// Puts come often while samples are taken, and then write between two samples. The thread is for
// when they stop coming: a compiler that takes seconds, a kernel that hangs.
void JournalStore::write_what_waits_long() {
  std::unique_lock lock(mutex_);
  while (!is_closing_) {
    const auto until = pending_since_ + 2 * options_.gather;
    if (!has_pending() || mode_ != Mode::kWrite || is_waiting_) {
      changed_.wait(lock);
    } else if (Clock::now() < until) {
      changed_.wait_until(lock, until);
    } else if (Status status = flush(); !status.ok()) {
      untold_ = std::move(status);
    }
  }
}

// One way for a single record and for what has piled up.
Status JournalStore::flush() {
  if (mode_ != Mode::kWrite || (is_waiting_ && Clock::now() < next_try_)) return {};
  if (!database_->is_in_place()) {
    std::string warning = open();
    if (!warning.empty()) return Error{ErrorCode::kIo, std::move(warning)};
  }
  // Others' locks are waited for once; from then on measuring is not to be held up.
  if (is_waiting_) database_->set_patience(std::chrono::milliseconds(0));
  Status status = write_pending();
  if (status.ok()) {
    if (std::exchange(is_waiting_, false)) database_->set_patience(options_.patience);
    return {};
  }
  if (status.error().code == ErrorCode::kParse) return damaged(status.error());
  next_try_ = Clock::now() + options_.retry_after;
  if (std::exchange(is_waiting_, true)) return {};
  return Error{status.error().code,
               fmt::format("{}; it is tried again later", status.error().message),
               status.error().hint};
}

Status JournalStore::write_pending() {
  if (!pending_.empty()) MOETUNE_RETURN_IF_ERROR(database_->put(pending_, options_.origin));
  pending_.clear();
  while (!pending_runs_.empty()) {
    MOETUNE_RETURN_IF_ERROR(database_->put_run(pending_runs_.front(), options_.origin));
    pending_runs_.erase(pending_runs_.begin());
  }
  return {};
}

// A file that turns out damaged is replaced by a new one, which takes what is pending.
Error JournalStore::damaged(const Error& damage) {
  database_.reset();
  is_waiting_ = false;
  const bool is_ours = std::exchange(mode_, Mode::kMemory) == Mode::kWrite;
  if (!is_ours) return {ErrorCode::kParse, fmt::format("{}; {}", damage.message, kInMemory)};
  std::string what = open_after_damage(damage);
  if (mode_ == Mode::kWrite) is_waiting_ = !write_pending().ok();
  return {ErrorCode::kParse, what.empty() ? damage.message : std::move(what)};
}

}  // namespace moetune::journal

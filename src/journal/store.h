// The journal as tuning uses it: a MeasurementStore that never stands in the way. What goes wrong
// with the file is said once, and tuning goes on with what is possible:
//
//   damaged, or no journal at all    renamed, never deleted; a new one is begun
//   of a newer version, foreign,     left as it is; everything is kept in memory
//   not to be read
//   not to be written                what is there is read; what is new is kept in memory
//   a full disk, a lock that another kept in memory, and tried again every few seconds and when the
//   process does not let go of       store is closed: in the end nothing is missing if it can be
//                                    written then
//   removed or set aside meanwhile   a new one is begun
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "journal/database.h"
#include "journal/entry.h"
#include "moetune/measuring.h"

namespace moetune::journal {

/// Thread-safe.
class JournalStore final : public MeasurementStore {
 public:
  struct Options {
    std::string path;
    Origin origin;
    /// How long opening and a put() wait for other processes.
    std::chrono::milliseconds patience{2000};
    /// How long what could not be written stays in memory before that is tried again.
    std::chrono::milliseconds retry_after{10000};
    /// How long records may wait for others, to be written together: a transaction of its own for
    /// each costs several times what its row does. Written by the first put after that time, or
    /// by a thread of the store's where none comes for twice as long. 0: at once.
    std::chrono::milliseconds gather{0};
    int64_t checked_bytes = Database::kCheckedBytes;  ///< See there.
  };

  /// Always usable. The folder must be there.
  explicit JournalStore(Options options);
  /// Writes what is still in memory; where that failed before, only if it takes no waiting.
  ~JournalStore() override;

  /// What was wrong when it was opened: texts for people, none where all is well.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Durable as Database says, within twice Options::gather at the latest. An error, once each time
  /// it happens, where records are kept in memory from now on; they are still found.
  Status put(const MeasurementRecord& record) override;
  /// Also what is only in memory. Where the file turns out damaged: kParse, and it is set aside.
  Result<std::vector<MeasurementRecord>> find(const std::string& problem,
                                              const std::string& device) override;
  /// As put(); with a plan, and all that came before it, at once.
  Status put_run(const TuneRun& run) override;
  Result<std::vector<TuneRun>> find_runs(const std::string& problem,
                                         const std::string& device) override;
  /// Ceilings that this program measured on that device before; nothing where it did not, or where
  /// the file cannot be read.
  std::optional<CeilingRecord> find_ceiling(const std::string& device, const std::string& what);
  /// Not kept where the file cannot be written.
  void put_ceiling(const CeilingRecord& record);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Mode : uint8_t { kWrite, kRead, kMemory };

  Database::Options database_options() const;
  /// Opens or makes the file; returns what was wrong, empty where nothing was.
  std::string open();
  std::string open_after_damage(const Error& damage);
  std::string open_to_read(const Error& refused);
  bool has_pending() const { return !pending_.empty() || !pending_runs_.empty(); }
  /// Writes what is pending at once, or when it has gathered long enough.
  Status write_soon(bool is_first, bool at_once);
  Status flush();
  Status write_pending();
  void write_what_waits_long();
  Error damaged(const Error& damage);

  Options options_;
  std::vector<std::string> warnings_;
  std::mutex mutex_;
  Mode mode_ = Mode::kMemory;
  std::unique_ptr<Database> database_;  // Null with kMemory.
  std::vector<MeasurementRecord> pending_;
  std::vector<TuneRun> pending_runs_;  // The last record of each.
  Clock::time_point pending_since_;
  Clock::time_point next_try_;
  bool is_waiting_ = false;  // The last attempt to write failed.
  Status untold_;            // What went wrong in the thread.

  // Where records are gathered: the thread that writes what no put() came for.
  std::condition_variable changed_;
  bool is_closing_ = false;
  std::thread writer_;
};

}  // namespace moetune::journal

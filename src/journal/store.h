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
#include <memory>
#include <mutex>
#include <string>
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
  };

  /// Always usable. The folder must be there.
  explicit JournalStore(Options options);
  /// Writes what is still in memory, if that takes no waiting.
  ~JournalStore() override;

  /// What was wrong when it was opened: texts for people, none where all is well.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Durable as Database says. An error, once each time it happens, where the record is kept in
  /// memory from now on; it is still found.
  Status put(const MeasurementRecord& record) override;
  /// Also what is only in memory. Where the file turns out damaged: kParse, and it is set aside.
  Result<std::vector<MeasurementRecord>> find(const std::string& problem,
                                              const std::string& device) override;
  /// The plan that tuning ended with, as put().
  Status put_plan(const Plan& plan, const DeviceProperties& device);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Mode : uint8_t { kWrite, kRead, kMemory };

  /// Opens or makes the file; returns what was wrong, empty where nothing was.
  std::string open();
  std::string open_after_damage(const Error& damage);
  std::string open_to_read(const Error& refused);
  Status flush();
  Status write_pending();
  Error damaged(const Error& damage);

  Options options_;
  std::vector<std::string> warnings_;
  std::mutex mutex_;
  Mode mode_ = Mode::kMemory;
  std::unique_ptr<Database> database_;  // Null with kMemory.
  std::vector<MeasurementRecord> pending_;
  std::vector<PlanRecord> pending_plans_;
  Clock::time_point next_try_;
  bool is_waiting_ = false;  // The last attempt to write failed.
};

}  // namespace moetune::journal

// One journal file. Strict: whatever is wrong with the file is an error, and the file stays as it
// is. store.h is for those who go on whatever happens.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "journal/entry.h"
#include "journal/names.h"
#include "journal/place.h"
#include "journal/schema.h"
#include "journal/sqlite.h"
#include "moetune/measuring.h"

namespace moetune::journal {

/// One thread at a time. Any number of processes may have the same file open.
///
/// Durability: what put() has acknowledged survives the end of the process, however it ends. It was
/// handed to the operating system (a write-ahead log, `synchronous = NORMAL`), which has not
/// necessarily brought it to the disk: when the machine loses power the last seconds may be
/// missing, and the file is consistent all the same. A measurement can be taken again, and flushing
/// the disk with every one would cost milliseconds each.
class Database {
 public:
  /// All pages of a file up to this size (300,000 measurements) are looked at when it is opened,
  /// which takes a second at most from a disk. Damage in a larger one is found where it is met: by
  /// any call here, as kParse.
  static constexpr int64_t kCheckedBytes = int64_t{32} << 20;

  struct Options {
    bool create = false;                       ///< Where there is no file.
    std::chrono::milliseconds patience{2000};  ///< For other processes' locks.
    int64_t checked_bytes = kCheckedBytes;     ///< See there.
    std::span<const Migration> steps = migrations();
  };

  /// For reading and writing; brings older versions up to date. Errors:
  ///   kNotFound         no file (without `create`), or no folder
  ///   kInvalidArgument  something else than a file
  ///   kParse            damaged
  ///   kUnsupported      of a newer version, or another program's
  ///   kIo               cannot be written, or not be read
  ///   kDeadline         held by another process
  static Result<std::unique_ptr<Database>> open(const std::string& path, const Options& options);
  /// For reading; changes nothing. Also where nothing can be written.
  static Result<std::unique_ptr<Database>> open_to_read(const std::string& path,
                                                        std::chrono::milliseconds patience,
                                                        int64_t checked_bytes = kCheckedBytes);

  const std::string& path() const { return connection_.path(); }
  void set_patience(std::chrono::milliseconds patience) { connection_.set_patience(patience); }
  /// Whether the file is still the one that its name leads to.
  bool is_in_place() const { return identity_of(path()) == identity_; }

  /// All of them or none. A measurement that this object has put before, and that has grown since
  /// (the same candidate, case, scale, stage, phase and rival), takes the place of the earlier row.
  Status put(std::span<const MeasurementRecord> records, const Origin& origin);
  /// The run with its plan. Takes the place of the row with the same id; a plan is put once, with
  /// the run's last record.
  Status put_run(const TuneRun& run, const Origin& origin);
  /// Takes the place of what the same origin measured before.
  Status put_ceiling(const CeilingRecord& record, const Origin& origin);

  /// Oldest first.
  Result<std::vector<MeasurementRecord>> find(const std::string& problem,
                                              const std::string& device);
  /// Those with a plan last, in the order in which they ended.
  Result<std::vector<TuneRun>> find_runs(const std::string& problem, const std::string& device);
  /// Of that very origin: another program or toolchain may be faster.
  Result<std::optional<CeilingRecord>> find_ceiling(const std::string& device,
                                                    const std::string& what, const Origin& origin);

  /// Adds what another file holds, unless the very same is there. Returns whether it was added. To
  /// be called inside of a transaction of connection(); forget() after one that was rolled back.
  Result<bool> merge(const MeasurementRecord& record, const Origin& origin);
  Result<bool> merge_plan(const PlanRecord& record, const Origin& origin);
  /// After the plans. A run that is there already and has come further here is left.
  Result<bool> merge_run(const RunRecord& record, const Origin& origin);
  void forget();

  Connection& connection() { return connection_; }

 private:
  Database(Connection connection, const FileIdentity& identity);
  Status put_once(std::span<const MeasurementRecord> records, const Origin& origin);
  Status put_one(const MeasurementRecord& record, const References& references);
  Result<References> references_of(const std::string& problem, const std::string& device,
                                   const Origin& origin);
  Result<References> references_of(const MeasurementRecord& record, const Origin& origin);
  Status in_transaction(const std::function<Status()>& body);
  Status upsert_run(const TuneRun& run, const References& references, int64_t plan);
  Status insert_plan(const PlanRecord& record, const References& references,
                     const std::string& plan);
  Status prepare_statements();

  Connection connection_;
  FileIdentity identity_;
  Names names_;
  Statement insert_;
  Statement update_;
  Statement find_;
  Statement same_;
  Statement put_run_;                                 // Prepared when the first run is put.
  std::unordered_map<std::string, int64_t> written_;  // Rows of this object's measurements.
};

}  // namespace moetune::journal

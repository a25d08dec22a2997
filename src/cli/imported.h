// tune --import: a tuning file of another engine, whose tactics compete.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exchange/triton_table.h"
#include "moetune/autotuner.h"
#include "moetune/result.h"
#include "worker/hosted_runner.h"

namespace moetune::cli {

/// Whether samples show that something takes over 1 % longer than the default: three quarters of
/// its times lie above three quarters of the default's.
bool is_shown_slower(const TimeSummary& time, const TimeSummary& fallback);

/// At most one. A value type.
class ImportedTable {
 public:
  /// Empty: none. read_triton_table()'s errors.
  static Result<ImportedTable> read(const std::string& path);

  /// Every entry, for the spaces of hosts.
  std::vector<Suggestion> suggestions() const;
  /// Puts what the table has for each bucket before everything else that is tried there, as far as
  /// a runner can run it. kInvalidArgument, naming the file, where nothing fits any runner.
  Status suggest(TuneRequest& request) const;
  /// Each bucket at which its tactic was shown to be slower than the default, or is out, with
  /// figures: in words, a line each. `store` is the one that was tuned with.
  std::vector<std::string> compare_with_default(const TuneRequest& request,
                                                MeasurementStore& store) const;
  /// What was imported, for TuneRequest::limits: another file is another run.
  std::string text() const;

 private:
  std::string path_;
  std::optional<exchange::TritonTable> table_;
};

}  // namespace moetune::cli

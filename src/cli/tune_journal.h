// The journal that `moetune tune` takes up from and writes to.
#pragma once

#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/output.h"
#include "journal/store.h"
#include "moetune/measuring.h"
#include "moetune/plan.h"

namespace moetune::cli {

class TuneJournal {
 public:
  void declare(Flags& flags);
  /// Before anything is measured. kInvalidArgument for flags that contradict each other; kNotFound
  /// where the folder of a file that was named is missing. What is wrong with the file itself goes
  /// to `output`: it is no reason not to tune.
  Status open(const std::string& workload, const DeviceProperties& device, Output& output);

  /// Null without a journal.
  MeasurementStore* store() { return traces_ ? traces_.get() : store_.get(); }
  /// "" without a journal.
  const std::string& path() const { return path_; }
  /// The journal itself, for what concerns the device and no problem. Null without one.
  journal::JournalStore* journal() { return store_.get(); }

 private:
  std::string path_;
  bool off_ = false;
  std::unique_ptr<journal::JournalStore> store_;
  std::unique_ptr<MeasurementStore> traces_;
};

}  // namespace moetune::cli

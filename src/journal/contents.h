// What is in a journal, and taking things out of it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "journal/database.h"
#include "journal/entry.h"
#include "moetune/measuring.h"

namespace moetune::journal {

/// Which entries: all conditions hold. Empty texts and the largest time mean any.
struct Filter {
  std::string problem;                                           ///< Part of the problem's key.
  std::string device;                                            ///< Part of the device's key.
  int64_t before_unix_ms = std::numeric_limits<int64_t>::max();  ///< Taken earlier than this.
};

/// What is kept of one problem on one device.
struct Group {
  std::string problem;
  std::string device;
  int64_t measurements = 0;  ///< All records, rejections and comparisons with them.
  int64_t rejections = 0;
  int64_t comparisons = 0;
  int64_t candidates = 0;  ///< Distinct ones, versions of a runner counted apart.
  int64_t plans = 0;
  int64_t runs = 0;
  double run_seconds = 0;  ///< Spent by all of them.
  int64_t first_unix_ms = 0;
  int64_t last_unix_ms = 0;
  std::vector<std::string> runners;  ///< "cpu.packed@3", in alphabetical order.
};
/// By device, then by problem, in alphabetical order.
Result<std::vector<Group>> groups(Database& database, const Filter& filter);

/// Calls `visit` with each measurement, oldest first, until it fails.
Status visit_measurements(
    Database& database, const Filter& filter,
    const std::function<Status(const MeasurementRecord&, const Origin&)>& visit);
Status visit_plans(Database& database, const Filter& filter,
                   const std::function<Status(const PlanRecord&, const Origin&)>& visit);

Status visit_runs(Database& database, const Filter& filter,
                  const std::function<Status(const RunRecord&, const Origin&)>& visit);

struct Pruned {
  int64_t measurements = 0;
  int64_t plans = 0;
  int64_t runs = 0;
};
/// What prune() would take out now.
Result<Pruned> count(Database& database, const Filter& filter);
/// Takes entries out for good, ceilings of the devices with them, and gives their space back to the
/// file system. In small transactions, so that others can write meanwhile; what was done before a
/// failure stays done.
Result<Pruned> prune(Database& database, const Filter& filter);

}  // namespace moetune::journal

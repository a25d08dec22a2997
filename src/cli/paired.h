// Two candidates against each other, in pairs of samples that lie next to each other in time.
#pragma once

#include <stop_token>

#include "base/statistics.h"
#include "moetune/autotuner.h"
#include "moetune/measuring.h"

namespace moetune::cli {

struct PairedTimes {
  double default_us = 0;
  double tuned_us = 0;
  Estimate speedup{1, 1, 1};  ///< default over tuned, with its 95 % interval.
  int rounds = 0;
};

/// Measures at the selected case in ABBA rounds for about `seconds`, at least the policy's fewest
/// rounds. One candidate twice (equal ones): the default alone, with a speed-up of 1. Both must
/// have passed a check at this case. `calls` per sample.
Result<PairedTimes> measure_pair(Executor& executor, const Candidate& fallback,
                                 const Candidate& tuned, int calls, double seconds,
                                 const MeasurementPolicy& policy, const std::stop_token& stop);

}  // namespace moetune::cli

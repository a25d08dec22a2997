// Deciding: one candidate against another (the default, as a rule), on fresh samples in ABBA
// rounds, for as long as it takes.
//
// A race's winner looks better than it is: the best of many noisy times is partly luck. So the
// winner meets the default again, in rounds of default, winner, winner, default, which cancel any
// steady drift, and only these samples count. The test looks at them at fixed rounds. Looking often
// is paid for by asking more of each look (docs/measurement.md has the rates that simulation
// finds).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "moetune/autotuner.h"
#include "moetune/measuring.h"
#include "tuner/paired_test.h"
#include "tuner/tune_meter.h"

namespace moetune {

struct Duel {
  Candidate challenger;
  Candidate fallback;
  Spot spot;
  Goal goal = Goal::kGain;
  std::string phase;       ///< "confirm", "veto", "interval"
  double deadline_s = 0;   ///< After the meter's start.
  double expected_us = 0;  ///< The fallback's time, roughly; 0: no idea.
};

struct DuelResult {
  Outcome outcome = Outcome::kUnresolved;
  Comparison versus;
  TimeSummary time;                     ///< The challenger's.
  bool challenger_failed = false;       ///< It was rejected.
  std::optional<Error> fallback_error;  ///< The other one does not run or is wrong.
};

/// Lets the two meet. What the store knows to be settled is not measured again.
DuelResult compare(Meter& meter, const Duel& duel);

}  // namespace moetune

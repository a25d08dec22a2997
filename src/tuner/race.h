// Racing: many candidates, samples in turns, and the slow ones leave early.
//
// A race has two parts. Exploring takes one sample of each candidate in an order that pays off even
// if time runs out half way: what is known to run well nearby, what a model of the parameters'
// effects takes for the fastest, neighbours of the best so far (they differ in one parameter), and
// points spread over the rest of the space. Then rounds: one sample of each that is left, in a new
// order every round, until the order is clear or the time is up. A race can stop after any sample
// and still has a ranking.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moetune/measuring.h"
#include "moetune/plan.h"
#include "tuner/tune_meter.h"

namespace moetune {

TimeSummary summary_of(std::span<const double> us);

struct Contender {
  enum class State : uint8_t { kWaiting, kRunning, kDropped, kRejected };

  Candidate candidate;
  bool pinned = false;   ///< Default or incumbent: tried first, never dropped, wins ties.
  double expected = 0;   ///< Time expected relative to the others, from a place nearby; 0: no idea.
  size_t resources = 0;  ///< Workspace bytes: fewer wins a tie.
  State state = State::kWaiting;
  std::vector<double> us;  ///< In order of time. Empty where the summary comes from the store.
  TimeSummary time;
  DeviceState last_state;
};

struct RaceTask {
  Spot spot;
  int stage = -1;
  double deadline_s = 0;  ///< After the meter's start.
  uint64_t seed = 0;
  std::vector<Candidate>
      later;  ///< What comes after this race: compiled when nothing else is to be.
  /// The contenders are all tactics of a stage: whether all was explored is remembered for later
  /// runs.
  bool is_search = false;
};

struct RaceResult {
  std::vector<Contender> ranking;  ///< Best first; only those with a time, the dropped included.
  std::vector<Candidate> rejected;
  int tried = 0;          ///< The rejected included.
  bool complete = false;  ///< All were tried, or all that is likely and many in vain; and more
                          ///< samples would not change the order.
  double noise = 0;       ///< Relative spread of one sample.
};

/// Races contenders at a spot whose setting the meter knows.
RaceResult race(Meter& meter, const RaceTask& task, std::vector<Contender> contenders);

/// Whether two candidates of one runner and scheme differ in exactly one parameter.
bool differ_in_one_parameter(const Candidate& a, const Candidate& b);

}  // namespace moetune

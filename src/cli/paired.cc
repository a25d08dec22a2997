#include "cli/paired.h"

#include <array>
#include <chrono>
#include <tuple>
#include <vector>

#include "base/status_macros.h"

namespace moetune::cli {
namespace {

// A speed-up known to this half-width needs no further rounds.
constexpr double kNarrowEnough = 0.003;

// Looking takes long enough for idle threads to fall asleep, which the next sample would pay for;
// so looks are few.
bool is_time_to_look(int rounds) { return (rounds & (rounds - 1)) == 0; }

bool is_narrow(const std::vector<double>& fallback, const std::vector<double>& tuned) {
  const Estimate estimate = paired_ratio(fallback, tuned, 0.95);
  return estimate.high - estimate.low < 2 * kNarrowEnough;
}

}  // namespace

Result<PairedTimes> measure_pair(Executor& executor, const Candidate& fallback,
                                 const Candidate& tuned, int calls, double seconds,
                                 const MeasurementPolicy& policy, const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const bool same = fallback.text() == tuned.text();
  const std::array<const Candidate*, 4> abba = {&fallback, &tuned, &tuned, &fallback};
  const std::span<const Candidate* const> order = same ? std::span(abba).first(1) : std::span(abba);
  std::vector<double> fallback_us;
  std::vector<double> tuned_us;
  PairedTimes times;
  while (times.rounds < policy.max_confirm_rounds && !stop.stop_requested()) {
    if (times.rounds >= policy.min_confirm_rounds) {
      if (Clock::now() >= end) break;
      if (!same && is_time_to_look(times.rounds)) {
        if (is_narrow(fallback_us, tuned_us)) break;
        MOETUNE_ASSIGN_OR_RETURN(std::ignore, executor.measure(order.first(1), -1, calls));
      }
    }
    MOETUNE_ASSIGN_OR_RETURN(const std::vector<Sample> samples, executor.measure(order, -1, calls));
    fallback_us.push_back(samples.front().us);
    if (!same) {
      fallback_us.push_back(samples[3].us);
      tuned_us.insert(tuned_us.end(), {samples[1].us, samples[2].us});
    }
    ++times.rounds;
  }
  if (times.rounds == 0)
    return Error{ErrorCode::kInterrupted, "stopped before anything was measured"};
  times.default_us = median(fallback_us);
  times.tuned_us = same ? times.default_us : median(tuned_us);
  if (!same) times.speedup = paired_ratio(fallback_us, tuned_us, 0.95);
  return times;
}

}  // namespace moetune::cli

// What the phases of tuning a problem share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moetune/autotuner.h"
#include "tuner/tune_meter.h"
#include "tuner/tune_search.h"
#include "tuner/tune_space.h"

namespace moetune {

/// What a bucket was decided to be.
struct Settled {
  Candidate chosen;
  bool is_default = true;
  Evidence evidence;
};

struct BucketState {
  int64_t tokens = 0;
  double importance = 1;
  Scale scale = Scale::kFull;          ///< Of its races.
  Scale confirm_scale = Scale::kFull;  ///< Of its confirmation, vetoes and interval ends.
  bool default_failed = false;         ///< At this size alone: a warning says why.
  std::vector<SearchResult> searches;  ///< By layout group.
  Candidate chosen;
  bool is_default = true;
  Evidence evidence;
  std::optional<Settled> before;  ///< While something faster than that is being confirmed.
  // What it took so far, in seconds.
  double raced_s = 0;
  double confirmed_s = 0;
  double settled_s = 0;  ///< Of the sizes below it, and for the last also of those above.
};

enum class Step : uint8_t { kRaces, kConfirmations, kIntervals };

/// How far a pass over the buckets has come.
struct Whereabouts {
  Step step = Step::kRaces;
  size_t index = 0;    ///< The bucket at work; their number: none.
  double since_s = 0;  ///< After the meter's start, as all times here.
  double until_s = 0;  ///< At the latest.
};

struct TuneState {
  const TuneRequest& request;
  Meter& meter;
  const CandidateSpace& space;
  size_t group = 0;  ///< Whose layout the plan has.
  std::vector<BucketState> buckets;
  // For the forecast.
  Whereabouts at;
  std::vector<double> race_weights;  ///< Of the buckets' shares in the time for races.
  double races_end_s = 0;            ///< At the latest.
  double confirm_end_s = 0;          ///< Likewise.

  /// Notes what is begun now, and what the step before took.
  void begin_step(Step step, size_t index, double until_s);

  /// Whether more time may change what a bucket is: it is not resolved, or not all that is likely
  /// was tried.
  bool is_open(const BucketState& bucket) const {
    return !bucket.evidence.resolved || !bucket.searches[group].complete;
  }

  const LayoutGroup& layout_group() const { return space.groups()[group]; }
  Spot spot(int64_t tokens, Scale scale) const { return spot(tokens, scale, request.workload); }
  Spot spot(int64_t tokens, Scale scale, const std::string& workload) const {
    return {{tokens, workload, request.seed}, scale};
  }
};

/// How dear a call is, relative to other sizes: the geometric mean of bytes and operations. 1 where
/// the workbench does not say.
double work_of(const TuneState& state, int64_t tokens, Scale scale);

/// The default's time at a scale, from the bucket's race; 0 where it was not raced.
double expected_us(const TuneState& state, const BucketState& bucket, Scale scale);

/// When the share of `index` in the time until `end_s` is used up, by its weight among its own and
/// the later ones. What one leaves unused is there for those after it.
double share_deadline_s(double now_s, std::span<const double> weights, size_t index, double end_s);

/// When tuning will have ended, in seconds after the meter's start, as it looks now.
double expected_end_s(const TuneState& state);

/// "2026-01-31T12:00:00Z", now.
std::string utc_now();

// ---- The phases, in order. Each ends early, and leaves the state valid, when time is up or the
// user stops. ----------------------

/// Races every bucket in every layout group until `end_s`. An error where the default itself fails.
Status race_buckets(TuneState& state, BucketSearch& search, double end_s);
/// Goes on with the races of buckets that are open. One that is resolved and has a faster winner
/// now is not resolved any more, and remembers what it was. Errors as race_buckets().
Status race_on(TuneState& state, BucketSearch& search, double end_s);
/// Whether another layout than the default's makes the better plan. If so it becomes the state's
/// group, every bucket has its choice, and nothing is left to confirm: there is no falling back to
/// the default within such a plan.
bool choose_other_layout(TuneState& state, double end_s);
/// Proves the likely winners right bit for bit, where the request says how.
void check_exactly(TuneState& state, double end_s);
/// Whether nothing stands against a candidate from check_exactly().
bool is_exact(TuneState& state, const Candidate& candidate, int64_t tokens);
/// Confirms the winner of each bucket that is not resolved against the default, and vetoes. What is
/// no better than what it was before stays that. An error where the default itself fails.
Status confirm_buckets(TuneState& state, double end_s);
/// The plan's decisions: who runs at the buckets, and between them.
std::vector<Decision> settle_intervals(TuneState& state);

}  // namespace moetune

// Layouts compete as whole plans. A plan in another layout than the default's cannot fall back to
// the default at some of its sizes, so it must be good at all of them: no bucket and no interval
// end may lose, and the whole must gain. Both layouts are in memory for that, so it is measured on
// a subset of the weights.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tuner/decide.h"
#include "tuner/tune_state.h"

namespace moetune {
namespace {

// The first of the ranking that the group packs for.
const Contender* best_of_group(const TuneState& state, size_t group, const BucketState& bucket) {
  for (const Contender& contender : bucket.searches[group].ranking) {
    if (state.space.fits(contender.candidate, state.space.groups()[group], bucket.tokens)) {
      return &contender;
    }
  }
  return nullptr;
}

// The mean logarithm of the gain over the default, by race times. Nothing where a bucket has no
// candidate.
std::optional<double> raced_gain(const TuneState& state, size_t group) {
  double gain = 0;
  double weight = 0;
  for (const BucketState& bucket : state.buckets) {
    const Contender* best = best_of_group(state, group, bucket);
    const double fallback_us = bucket.searches[group].fallback_us;
    if (best == nullptr || fallback_us <= 0) return std::nullopt;
    gain += bucket.importance * std::log(fallback_us / best->time.median_us);
    weight += bucket.importance;
  }
  return weight > 0 ? std::optional(gain / weight) : std::nullopt;
}

class LayoutTrial {
 public:
  LayoutTrial(TuneState& state, size_t group, double end_s)
      : state_(state), group_(group), end_s_(end_s), trial_(state.buckets) {}

  /// Whether the group's plan beats the default's layout, whose raced gain is `to_beat`.
  bool run(double to_beat);
  std::vector<BucketState> take() { return std::move(trial_); }

 private:
  bool confirm(size_t index);
  bool holds(const Candidate& candidate, int64_t tokens, const std::string& workload);
  bool runs_at_full_size();

  TuneState& state_;
  size_t group_;
  double end_s_;
  std::vector<BucketState> trial_;
  double gain_ = 0;
  double variance_ = 0;
  double weight_ = 0;
};

bool LayoutTrial::run(double to_beat) {
  for (size_t i = 0; i < trial_.size(); ++i) {
    if (!confirm(i)) return false;
  }
  const double gain = gain_ / weight_ - to_beat;
  const double half_width = std::sqrt(variance_) / weight_;
  if (gain - half_width <= 0 || gain < std::log1p(state_.meter.policy().min_gain)) return false;
  return runs_at_full_size();
}

bool LayoutTrial::confirm(size_t index) {
  BucketState& bucket = trial_[index];
  const Contender* best = best_of_group(state_, group_, bucket);
  const double now = state_.meter.elapsed_s();
  const double deadline = now + (end_s_ - now) / static_cast<double>(trial_.size() - index);
  const Spot spot = state_.spot(bucket.tokens, Scale::kSubset);
  state_.meter.begin("confirm", bucket.tokens, 2);
  const DuelResult duel =
      compare(state_.meter, {best->candidate, state_.space.fallback(bucket.tokens), spot,
                             Goal::kGain, "confirm", deadline});
  const Comparison& versus = duel.versus;
  const double worst = 1 - state_.meter.policy().veto_loss;
  if (duel.challenger_failed || duel.fallback_error || versus.rounds == 0) return false;
  if (versus.low <= worst && duel.outcome != Outcome::kBetter) return false;
  gain_ += bucket.importance * std::log(versus.speedup);
  variance_ += std::pow(bucket.importance * std::log(versus.speedup / versus.low), 2);
  weight_ += bucket.importance;

  bucket.chosen = best->candidate;
  bucket.is_default = false;
  bucket.evidence = {duel.time,
                     versus.against_time,
                     versus.speedup,
                     versus.low,
                     versus.high,
                     duel.outcome != Outcome::kUnresolved,
                     state_.request.workload,
                     "two layouts were compared",
                     true,
                     0,
                     0,
                     "",
                     ""};
  bucket.evidence.candidates = bucket.searches[group_].tried;
  bucket.evidence.rejected = bucket.searches[group_].rejected;
  for (const std::string& workload : state_.request.veto_workloads) {
    if (!holds(bucket.chosen, bucket.tokens, workload)) return false;
  }
  const bool is_last = index + 1 == trial_.size();
  const int64_t far_end = is_last ? bucket.tokens : trial_[index + 1].tokens - 1;
  const int64_t near_end = index == 0 ? 1 : bucket.tokens;
  return holds(bucket.chosen, far_end, state_.request.workload) &&
         holds(bucket.chosen, near_end, state_.request.workload);
}

bool LayoutTrial::holds(const Candidate& candidate, int64_t tokens, const std::string& workload) {
  if (!state_.space.fits(candidate, state_.space.groups()[group_], tokens)) return false;
  const DuelResult duel = compare(
      state_.meter, {candidate, state_.space.fallback(tokens),
                     state_.spot(tokens, Scale::kSubset, workload), Goal::kNoLoss, "veto", end_s_});
  return duel.outcome == Outcome::kNoLoss;
}

// With the whole of the weights in the new layout: right at every bucket, exactly and closely.
bool LayoutTrial::runs_at_full_size() {
  std::swap(state_.group, group_);
  check_exactly(state_, state_.request.budget_s);
  state_.meter.use_layouts(state_.layout_group().layouts);
  bool all_right = true;
  for (const BucketState& bucket : trial_) {
    const Spot spot = state_.spot(bucket.tokens, Scale::kFull);
    const Status status = state_.meter.check(bucket.chosen, spot, "verify");
    const bool is_fault = !status.ok() && status.error().code != ErrorCode::kInterrupted;
    if (is_fault) state_.meter.reject(bucket.chosen, spot, status.error(), "verify");
    all_right = status.ok() && is_exact(state_, bucket.chosen, bucket.tokens);
    if (!all_right) break;
  }
  std::swap(state_.group, group_);
  return all_right;
}

}  // namespace

bool choose_other_layout(TuneState& state, double end_s) {
  const auto to_beat = raced_gain(state, 0);
  if (!to_beat) return false;
  std::optional<double> best_gain = *to_beat + std::log1p(state.meter.policy().min_gain);
  size_t best_group = 0;
  for (size_t group = 1; group < state.space.groups().size(); ++group) {
    const auto gain = raced_gain(state, group);
    if (!gain || gain <= best_gain) continue;
    best_gain = gain;
    best_group = group;
  }
  if (best_group == 0) return false;
  LayoutTrial trial(state, best_group, end_s);
  if (!trial.run(*to_beat)) return false;
  state.group = best_group;
  state.buckets = trial.take();
  return true;
}

}  // namespace moetune

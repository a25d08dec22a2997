// When tuning will have ended, as it looks now.
//
// Budgets say when a phase ends at the latest, and much tuning ends before: spaces are small, or
// comparisons clear. What a bucket needs is taken to be a number of samples that is alike for all
// buckets, from those that are done, and what a sample takes is known or follows from the work.

#include <algorithm>
#include <vector>

#include "tuner/tune_state.h"

namespace moetune {
namespace {

// Samples, until something was done. A confirmation: ten rounds with the default, and other
// traffic.
constexpr double kConfirmSamples = 48;
// The sizes between two buckets whose choices differ: some comparisons until the crossover is
// found.
constexpr double kIntervalSamples = 120;
// The sizes below the first bucket: one comparison.
constexpr double kEdgeSamples = 45;
// A race: each candidate once, and some of the best more often.
constexpr double kRaceSamples = 30;

class Forecast {
 public:
  explicit Forecast(const TuneState& state)
      : state_(state), at_(state.at), now_s_(state.meter.elapsed_s()) {
    for (size_t i = 0; i < state.buckets.size(); ++i) sample_s_.push_back(sample_s(i));
  }

  double end_s() const {
    const double budget = state_.request.budget_s;
    double end = now_s_;
    if (at_.step == Step::kRaces) end = races_end_s();
    if (at_.step != Step::kIntervals) end = confirmations_end_s(end);
    return std::min(budget, end + intervals_s());
  }

 private:
  double sample_s(size_t index) const {
    const BucketState* known = nullptr;
    for (size_t i = 0; i <= index; ++i) {
      if (state_.buckets[i].searches[state_.group].fallback_us > 0) known = &state_.buckets[i];
    }
    double known_us = 0;
    if (known != nullptr) {
      known_us = expected_us(state_, *known, known->scale);
    } else {
      // In its first race, as far as the default was timed already.
      known = &state_.buckets.front();
      const MeasurementRecord* first = state_.meter.known().timed(
          state_.space.fallback(known->tokens), state_.spot(known->tokens, known->scale), -1);
      if (first == nullptr) return 0;
      known_us = first->time.median_us;
    }
    const double ratio = work_of(state_, state_.buckets[index].tokens, known->scale) /
                         work_of(state_, known->tokens, known->scale);
    const double us = ratio * known_us;
    return 1e-6 * us * setting_for(state_.meter.policy(), us).calls;
  }

  /// Seconds per sample's second that buckets took which measured at all; `otherwise` where none
  /// did. A bucket that takes longer than those before it raises it.
  double pace(Step step, double BucketState::*spent_s, double otherwise) const {
    double spent = 0;
    double samples = 0;
    for (size_t i = 0; i < state_.buckets.size(); ++i) {
      const double seconds = state_.buckets[i].*spent_s;
      // What took less than a sample was known.
      if (seconds <= sample_s_[i] || sample_s_[i] <= 0) continue;
      spent += seconds;
      samples += sample_s_[i];
    }
    const double found = samples > 0 ? spent / samples : otherwise;
    const bool is_at_it = at_.step == step && at_.index < sample_s_.size();
    const double here = is_at_it ? sample_s_[at_.index] : 0;
    return here > 0 ? std::max(found, (now_s_ - at_.since_s) / here) : found;
  }

  double races_end_s() const {
    const int candidates = state_.meter.most_candidates();
    const double pace_s =
        pace(Step::kRaces, &BucketState::raced_s, candidates > 0 ? kRaceSamples + candidates : 0);
    double now = now_s_;
    bool is_short_of_time = false;
    for (size_t i = 0; i < state_.buckets.size(); ++i) {
      if (i < at_.index) {
        is_short_of_time = is_short_of_time || !state_.buckets[i].searches[state_.group].complete;
        continue;
      }
      const bool is_here = i == at_.index;
      const double until =
          is_here ? at_.until_s : share_deadline_s(now, state_.race_weights, i, state_.races_end_s);
      const double need = pace_s * sample_s_[i] - (is_here ? now_s_ - at_.since_s : 0);
      const bool is_known = pace_s > 0 && sample_s_[i] > 0;
      is_short_of_time = is_short_of_time || !is_known || now + need > until;
      now = is_known ? std::clamp(now + need, now, std::max(now, until)) : std::max(now, until);
    }
    // Then a pass downwards takes what is left.
    return is_short_of_time ? std::max(now, state_.races_end_s) : now;
  }

  double confirmations_end_s(double now) const {
    const double pace_s = pace(Step::kConfirmations, &BucketState::confirmed_s, kConfirmSamples);
    const bool is_confirming = at_.step == Step::kConfirmations;
    for (size_t i = 0; i < state_.buckets.size(); ++i) {
      // What stays open is taken up again while time lasts.
      const SearchResult& search = state_.buckets[i].searches[state_.group];
      if (search.fallback_us > 0 && !search.complete) return std::max(now, state_.confirm_end_s);
      if (state_.buckets[i].evidence.resolved) continue;
      const bool was_tried = is_confirming && i < at_.index;
      if (was_tried || state_.buckets[i].confirmed_s > 0)
        return std::max(now, state_.confirm_end_s);
      const bool is_here = is_confirming && i == at_.index;
      now += pace_s * sample_s_[i] - (is_here ? now_s_ - at_.since_s : 0);
    }
    return std::max(now_s_, std::min(now, state_.confirm_end_s));
  }

  // Only where neighbours differ is there anything to measure between them.
  double intervals_s() const {
    const bool is_here = at_.step == Step::kIntervals;
    const double pace_s = pace(Step::kIntervals, &BucketState::settled_s, kIntervalSamples);
    double seconds = 0;
    for (size_t i = is_here ? at_.index : 0; i < state_.buckets.size(); ++i) {
      const bool is_open =
          i == 0 ? has_sizes_below() : differ(state_.buckets[i - 1], state_.buckets[i]);
      if (is_open) seconds += (i == 0 ? kEdgeSamples : pace_s) * sample_s_[i];
    }
    return std::max(0.0, seconds - (is_here ? now_s_ - at_.since_s : 0));
  }

  // Where something else than the default leads, it must hold below the first bucket too.
  bool has_sizes_below() const {
    const BucketState& first = state_.buckets.front();
    const Candidate* leads = leader(first);
    if (first.tokens == 1) return false;
    return leads == nullptr || !(*leads == state_.space.fallback(first.tokens));
  }

  // By what was decided, or else by what leads.
  bool differ(const BucketState& a, const BucketState& b) const {
    const Candidate* first = leader(a);
    const Candidate* second = leader(b);
    return first != nullptr && second != nullptr && !(*first == *second);
  }
  const Candidate* leader(const BucketState& bucket) const {
    if (!bucket.is_default) return &bucket.chosen;
    const auto& ranking = bucket.searches[state_.group].ranking;
    return ranking.empty() ? nullptr : &ranking[0].candidate;
  }

  const TuneState& state_;
  const Whereabouts& at_;
  double now_s_;
  std::vector<double> sample_s_;  // By bucket; 0: no idea.
};

}  // namespace

double expected_end_s(const TuneState& state) { return Forecast(state).end_s(); }

void TuneState::begin_step(Step step, size_t index, double until_s) {
  const double now = meter.elapsed_s();
  if (at.index < buckets.size()) {
    BucketState& last = buckets[at.index];
    double& spent = at.step == Step::kRaces           ? last.raced_s
                    : at.step == Step::kConfirmations ? last.confirmed_s
                                                      : last.settled_s;
    spent += now - at.since_s;
  }
  at = {step, index, now, until_s};
}

}  // namespace moetune

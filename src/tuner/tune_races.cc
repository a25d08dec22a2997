// The races of all buckets, in an order in which each learns from the one before.

#include <algorithm>
#include <cmath>

#include "tuner/tune_state.h"

namespace moetune {
namespace {

std::vector<WeightLayout> all_layouts(const CandidateSpace& space) {
  std::vector<WeightLayout> layouts;
  for (const LayoutGroup& group : space.groups()) {
    layouts.insert(layouts.end(), group.layouts.begin(), group.layouts.end());
  }
  return layouts;
}

void add_winner(const TuneState& state, size_t bucket, size_t group,
                std::vector<Candidate>& winners) {
  const auto& ranking = state.buckets[bucket].searches[group].ranking;
  if (!ranking.empty()) winners.push_back(ranking[0].candidate);
}

bool has_raced(const SearchResult& search, const Candidate& candidate) {
  return std::any_of(search.ranking.begin(), search.ranking.end(),
                     [&](const Contender& c) { return c.candidate == candidate; });
}

// Large sizes need more time, though not in proportion: they have fewer samples, each of which is
// less noisy.
std::vector<double> race_weights(const TuneState& state) {
  std::vector<double> weights;
  for (const BucketState& bucket : state.buckets) {
    weights.push_back(bucket.importance *
                      std::cbrt(work_of(state, bucket.tokens, state.race_scale)));
  }
  return weights;
}

// Upwards: small sizes are cheap and leave time to the large ones, which start from what won below.
Status race_upwards(TuneState& state, BucketSearch& search, double end_s) {
  const size_t groups = state.space.groups().size();
  const std::vector<double> weights = race_weights(state);
  for (size_t i = 0; i < state.buckets.size(); ++i) {
    BucketState& bucket = state.buckets[i];
    const Spot spot = state.spot(bucket.tokens, state.race_scale);
    const double deadline = share_deadline_s(state.meter, weights, i, end_s);
    if (state.meter.over(deadline)) continue;
    state.meter.begin("check", bucket.tokens, 0);
    const auto setting = state.meter.setting(spot, state.space.fallback(bucket.tokens));
    if (!setting.ok()) {
      if (setting.error().code == ErrorCode::kInterrupted) continue;
      if (holds_everywhere(setting.error().code)) return setting.error();
      state.meter.report().warnings.push_back(setting.error().message);
      continue;
    }
    for (size_t group = 0; group < groups; ++group) {
      const double now = state.meter.elapsed_s();
      const double share = (deadline - now) / static_cast<double>(groups - group);
      std::vector<Candidate> incumbents;
      if (i > 0) add_winner(state, i - 1, group, incumbents);
      bucket.searches[group] =
          search.run(state.space.groups()[group], spot, now + share, incumbents);
    }
    state.meter.set_done(
        0.5 * static_cast<double>(i + 1) / static_cast<double>(state.buckets.size()),
        static_cast<int>(i + 1));
  }
  return {};
}

// Downwards, with what is left of the time: unfinished searches go on, and what won above is tried
// below.
void race_downwards(TuneState& state, BucketSearch& search, double end_s) {
  for (size_t i = state.buckets.size(); i-- > 0;) {
    BucketState& bucket = state.buckets[i];
    for (size_t group = 0; group < state.space.groups().size(); ++group) {
      SearchResult& found = bucket.searches[group];
      if (found.fallback_us <= 0) continue;
      std::vector<Candidate> incumbents;
      if (i + 1 < state.buckets.size()) add_winner(state, i + 1, group, incumbents);
      if (i > 0) add_winner(state, i - 1, group, incumbents);
      const bool nothing_new =
          std::all_of(incumbents.begin(), incumbents.end(),
                      [&](const Candidate& candidate) { return has_raced(found, candidate); });
      const double now = state.meter.elapsed_s();
      const double share = (end_s - now) / static_cast<double>(i + 1);
      if (state.meter.over(end_s) || (found.complete && nothing_new)) continue;
      SearchResult again =
          search.run(state.space.groups()[group], state.spot(bucket.tokens, state.race_scale),
                     now + share, incumbents);
      if (!again.ranking.empty() && again.fallback_us > 0) found = std::move(again);
    }
  }
}

}  // namespace

Status race_buckets(TuneState& state, BucketSearch& search, double end_s) {
  state.meter.use_layouts(all_layouts(state.space));
  if (Status status = race_upwards(state, search, end_s); !status.ok()) return status;
  race_downwards(state, search, end_s);
  return {};
}

}  // namespace moetune

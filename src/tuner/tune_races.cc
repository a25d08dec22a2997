// The races of all buckets, in an order in which each learns from the one before.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/status_macros.h"
#include "tuner/tune_state.h"

namespace moetune {
namespace {

// A part of the layer stands for the whole where that saves much of a dear call, and experts have
// rows enough for their loads to be alike.
constexpr double kWorthASubset = 1.5;
constexpr double kLeastRowsPerChunk = 2;
// How a size's share of the time grows with what its samples cost: from a third to a half,
// simulated regret (tuner_tests, TuneRegretSlow) hardly differs; 0.7 starves the small sizes.
constexpr double kDearness = 0.4;

Scale scale_of(const TuneState& state, size_t index) {
  if (state.space.groups().size() > 1) return Scale::kSubset;
  if (index == 0) return Scale::kFull;  // Nothing is known of its cost yet.
  const BucketState& below = state.buckets[index - 1];
  const int64_t tokens = state.buckets[index].tokens;
  const double below_us = expected_us(state, below, Scale::kFull);
  const double expected =
      below_us * work_of(state, tokens, Scale::kFull) / work_of(state, below.tokens, Scale::kFull);
  if (expected < kDearUs) return Scale::kFull;
  Workbench& bench = *state.request.bench;
  const Case what = state.spot(tokens, Scale::kFull).what;
  const Work full = bench.work(what, Scale::kFull, 0);
  const Work subset = bench.work(what, Scale::kSubset, 0);
  const Work one = bench.work({1, what.workload, what.seed}, Scale::kFull, 0);
  const bool is_smaller = full.bytes > kWorthASubset * subset.bytes ||
                          full.operations > kWorthASubset * subset.operations;
  const double rows = subset.operations / one.operations * static_cast<double>(one.touched_chunks);
  const bool is_alike = rows >= kLeastRowsPerChunk * static_cast<double>(subset.touched_chunks);
  return is_smaller && is_alike ? Scale::kSubset : Scale::kFull;
}

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

void add_suggestions(const TuneState& state, size_t bucket, std::vector<Candidate>& incumbents) {
  const auto found = state.request.suggestions.find(state.buckets[bucket].tokens);
  if (found == state.request.suggestions.end()) return;
  incumbents.insert(incumbents.end(), found->second.begin(), found->second.end());
}

bool has_raced(const SearchResult& search, const Candidate& candidate) {
  return std::any_of(search.ranking.begin(), search.ranking.end(),
                     [&](const Contender& c) { return c.candidate == candidate; });
}

// A sample costs the same at all sizes whose calls are shorter than a rotation over routings, and
// from there on as much as a call. Dear sizes get more time, though not in proportion: they have
// fewer samples, each of which is less noisy.
std::vector<double> race_weights(const TuneState& state, double smallest_us) {
  const double least_us = state.meter.policy().max_rotation_us;
  const double smallest_work = work_of(state, state.buckets[0].tokens, Scale::kFull);
  std::vector<double> weights;
  for (const BucketState& bucket : state.buckets) {
    const double work = work_of(state, bucket.tokens, Scale::kFull) / smallest_work;
    const double sample_us = std::max(least_us, smallest_us * work);
    weights.push_back(bucket.importance * std::pow(sample_us, kDearness));
  }
  return weights;
}

// Whether the bucket can be raced: how its calls are sampled is known, from measuring the default
// if from nothing else. An error where the default fails wherever it runs.
Result<bool> set_up(TuneState& state, BucketState& bucket) {
  if (bucket.default_failed) return false;
  const auto setting = state.meter.setting(state.spot(bucket.tokens, bucket.scale),
                                           state.space.fallback(bucket.tokens));
  if (setting.ok()) return true;
  if (setting.error().code == ErrorCode::kInterrupted) return false;
  if (holds_everywhere(setting.error().code)) return setting.error();
  state.meter.report().warnings.push_back(setting.error().message);
  bucket.default_failed = true;
  return false;
}

// Where a race that went on has a faster winner than what the bucket was resolved to be.
void reopen_if_faster(const TuneState& state, BucketState& bucket) {
  const SearchResult& search = bucket.searches[state.group];
  const Candidate now = bucket.is_default ? state.space.fallback(bucket.tokens) : bucket.chosen;
  if (search.ranking.empty()) return;
  bucket.evidence.candidates = search.tried;
  bucket.evidence.rejected = search.rejected;
  const Contender& best = search.ranking.front();
  const auto mine = std::find_if(search.ranking.begin(), search.ranking.end(),
                                 [&](const Contender& c) { return c.candidate == now; });
  const double least_gain = 1 + state.meter.policy().min_gain;
  const bool is_faster =
      mine != search.ranking.end() && mine->time.median_us > least_gain * best.time.median_us;
  if (!is_faster) return;
  bucket.before = Settled{bucket.chosen, bucket.is_default, bucket.evidence};
  bucket.is_default = true;
  bucket.evidence.resolved = false;
}

// Upwards: small sizes are cheap and leave time to the large ones, which start from what won below.
Status race_upwards(TuneState& state, BucketSearch& search, double end_s) {
  const size_t groups = state.space.groups().size();
  // Packs, where it measures: once for all, before the time is shared out.
  const BucketState& smallest = state.buckets[0];
  const Spot start = state.spot(smallest.tokens, groups > 1 ? Scale::kSubset : Scale::kFull);
  search.compile_ahead(state.space.groups()[0], start);
  const auto first = state.meter.setting(start, state.space.fallback(smallest.tokens));
  state.race_weights = race_weights(state, first.ok() ? first->fallback_us : 0);
  for (size_t i = 0; i < state.buckets.size(); ++i) {
    BucketState& bucket = state.buckets[i];
    bucket.scale = bucket.confirm_scale = scale_of(state, i);
    const Spot spot = state.spot(bucket.tokens, bucket.scale);
    const double deadline = share_deadline_s(state.meter.elapsed_s(), state.race_weights, i, end_s);
    state.begin_step(Step::kRaces, i, deadline);
    if (state.meter.over(deadline)) continue;
    state.meter.begin("check", bucket.tokens, 0);
    MOETUNE_ASSIGN_OR_RETURN(const bool is_set, set_up(state, bucket));
    if (!is_set) continue;
    std::vector<Candidate> after;
    if (i + 1 < state.buckets.size())
      after.push_back(state.space.fallback(state.buckets[i + 1].tokens));
    for (size_t group = 0; group < groups; ++group) {
      const double now = state.meter.elapsed_s();
      const double share = (deadline - now) / static_cast<double>(groups - group);
      std::vector<Candidate> incumbents;
      if (i > 0) add_winner(state, i - 1, group, incumbents);
      add_suggestions(state, i, incumbents);
      bucket.searches[group] =
          search.run(state.space.groups()[group], spot, now + share, incumbents, after);
    }
    state.meter.set_buckets_done(static_cast<int>(i + 1));
  }
  return {};
}

// Downwards, with what is left of the time: unfinished searches go on, those that had no time yet
// begin, and what won above is tried below.
Status race_downwards(TuneState& state, BucketSearch& search, std::span<const size_t> groups,
                      double end_s) {
  state.begin_step(Step::kRaces, state.buckets.size(), end_s);
  const auto wants_more = [&](const BucketState& bucket) {
    return std::any_of(groups.begin(), groups.end(),
                       [&](size_t g) { return !bucket.searches[g].complete; });
  };
  for (size_t i = state.buckets.size(); i-- > 0;) {
    BucketState& bucket = state.buckets[i];
    if (!state.is_open(bucket)) continue;
    for (const size_t group : groups) {
      SearchResult& found = bucket.searches[group];
      std::vector<Candidate> incumbents;
      if (i + 1 < state.buckets.size()) add_winner(state, i + 1, group, incumbents);
      if (i > 0) add_winner(state, i - 1, group, incumbents);
      if (found.fallback_us <= 0) add_suggestions(state, i, incumbents);
      if (!bucket.is_default) incumbents.push_back(bucket.chosen);
      const bool nothing_new =
          std::all_of(incumbents.begin(), incumbents.end(),
                      [&](const Candidate& candidate) { return has_raced(found, candidate); });
      const double now = state.meter.elapsed_s();
      const auto others = std::count_if(
          state.buckets.begin(), state.buckets.begin() + static_cast<ptrdiff_t>(i), wants_more);
      const double share = (end_s - now) / static_cast<double>(others + 1);
      if (state.meter.over(end_s) || (found.complete && nothing_new)) continue;
      MOETUNE_ASSIGN_OR_RETURN(const bool is_set, set_up(state, bucket));
      if (!is_set) continue;
      SearchResult again =
          search.run(state.space.groups()[group], state.spot(bucket.tokens, bucket.scale),
                     now + share, incumbents);
      if (!again.ranking.empty() && again.fallback_us > 0) found = std::move(again);
      if (bucket.evidence.resolved) reopen_if_faster(state, bucket);
    }
  }
  return {};
}

}  // namespace

Status race_buckets(TuneState& state, BucketSearch& search, double end_s) {
  state.meter.use_layouts(all_layouts(state.space));
  if (Status status = race_upwards(state, search, end_s); !status.ok()) return status;
  std::vector<size_t> groups(state.space.groups().size());
  std::iota(groups.begin(), groups.end(), size_t{0});
  return race_downwards(state, search, groups, end_s);
}

Status race_on(TuneState& state, BucketSearch& search, double end_s) {
  state.meter.use_layouts(state.layout_group().layouts);
  return race_downwards(state, search, std::span(&state.group, 1), end_s);
}

}  // namespace moetune

// Between the buckets: a decision holds for its interval only where it does not lose to the default
// at the far end, and where neighbours differ, the crossover is looked for while time lasts.

#include <algorithm>
#include <set>

#include "tuner/decide.h"
#include "tuner/fit.h"
#include "tuner/interval.h"
#include "tuner/tune_state.h"

namespace moetune {
namespace {

// Two decisions whose race times at the next bucket are this close are not worth telling apart in
// between.
constexpr double kWorthACrossover = 1.02;

class IntervalSettler {
 public:
  explicit IntervalSettler(TuneState& state) : state_(state), meter_(state.meter) {}

  std::vector<Decision> run();

 private:
  void compile_ahead(const std::vector<Zone>& zones);
  std::vector<Segment> settle(const Zone& zone);
  std::vector<Segment> settle_owned(const Zone& zone, int owner, int other);
  std::optional<int> judge(int64_t tokens, int owner, int other);
  // Empty where it could not be measured.
  std::optional<bool> holds(int candidate, int64_t tokens);
  bool beats(int challenger, const Candidate& holder, int64_t tokens);
  double expected_us(int bucket, int64_t tokens) const;
  bool held_in_race(int candidate, int at_bucket) const;
  double race_us(const Candidate& candidate, int at_bucket) const;
  bool is_tuned(int bucket) const { return bucket >= 0 && !of(bucket).is_default; }
  bool fits(int bucket, int64_t from, int64_t to) const;
  const BucketState& of(int bucket) const { return state_.buckets[static_cast<size_t>(bucket)]; }
  Decision decision_of(const Segment& segment) const;

  TuneState& state_;
  Meter& meter_;
  double deadline_s_ = 0;
};

std::vector<Decision> IntervalSettler::run() {
  std::vector<int64_t> sizes;
  std::vector<Segment> segments;
  for (size_t i = 0; i < state_.buckets.size(); ++i) {
    sizes.push_back(state_.buckets[i].tokens);
    segments.push_back({sizes.back(), sizes.back(), static_cast<int>(i)});
  }
  const std::vector<Zone> zones = zones_between(sizes);
  compile_ahead(zones);
  for (size_t i = 0; i < zones.size(); ++i) {
    const double now = meter_.elapsed_s();
    deadline_s_ = now + (state_.request.budget_s - now) / static_cast<double>(zones.size() - i);
    state_.begin_step(Step::kIntervals, std::min(i, state_.buckets.size() - 1), deadline_s_);
    meter_.begin("refine", zones[i].from, 2);
    for (const Segment& segment : settle(zones[i])) segments.push_back(segment);
  }
  // Nobody's sizes join a neighbour that runs the default anyway.
  segments = joined(std::move(segments));
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].owner != Segment::kNobody) continue;
    const int before = i > 0 ? segments[i - 1].owner : Segment::kNobody;
    const int after = i + 1 < segments.size() ? segments[i + 1].owner : Segment::kNobody;
    if (before >= 0 && !is_tuned(before)) {
      segments[i].owner = before;
    } else if (after >= 0 && !is_tuned(after)) {
      segments[i].owner = after;
    }
  }
  std::vector<Decision> decisions;
  for (const Segment& segment : joined(std::move(segments)))
    decisions.push_back(decision_of(segment));
  return decisions;
}

// Kernels may depend on whether sizes are multiples of something: buckets are, as a rule, and ends
// of intervals are not. Those of the last stand for all.
void IntervalSettler::compile_ahead(const std::vector<Zone>& zones) {
  if (zones.empty() || !meter_.may_measure() || !state_.request.refine_intervals) return;
  const int64_t tokens = zones.back().to;
  std::vector<Candidate> wanted{state_.space.fallback(tokens)};
  const auto add = [&](const Candidate& candidate) {
    if (std::find(wanted.begin(), wanted.end(), candidate) == wanted.end())
      wanted.push_back(candidate);
  };
  for (const BucketState& bucket : state_.buckets) {
    add(state_.space.fallback(bucket.tokens));
    if (!bucket.is_default) add(bucket.chosen);
  }
  meter_.prefetch(wanted, state_.spot(tokens, Scale::kFull));
}

std::vector<Segment> IntervalSettler::settle(const Zone& zone) {
  const bool is_floor = state_.request.buckets.rounding() == BucketRounding::kFloor;
  int owner = is_floor ? zone.lower : zone.upper;
  int other = is_floor ? zone.upper : zone.lower;
  if (owner == Segment::kNobody) std::swap(owner, other);
  const bool is_same = other == Segment::kNobody
                           ? !is_tuned(owner)
                           : of(owner).is_default == of(other).is_default &&
                                 (of(owner).is_default || of(owner).chosen == of(other).chosen);
  const bool as_it_is = is_same || !state_.request.refine_intervals;
  if (as_it_is && (!is_tuned(owner) || fits(owner, zone.from, zone.to))) {
    return {{zone.from, zone.to, owner}};
  }
  if (!state_.request.refine_intervals) return {{zone.from, zone.to, Segment::kNobody}};
  return settle_owned(zone, owner, other);
}

// Sizes that the owner does not fit are nobody's; the rest is split where it stops being the right
// one.
std::vector<Segment> IntervalSettler::settle_owned(const Zone& zone, int owner, int other) {
  const bool upwards = owner == zone.lower;
  const int64_t step = upwards ? 1 : -1;
  const int64_t first = upwards ? zone.from : zone.to;
  const int64_t end = (upwards ? zone.to : zone.from) + step;
  int64_t far = first;
  while (far != end && (!is_tuned(owner) || fits(owner, far, far))) far += step;
  std::vector<Segment> segments;
  if (far != first) {
    segments = split(first, far - step, owner, [&](int64_t tokens) {
      auto answer = judge(tokens, owner, other);
      const bool is_end = tokens == far - step;
      if (!answer && is_end && other >= 0 && held_in_race(owner, other)) answer = owner;
      return answer;
    });
  }
  if (far != end) {
    segments.push_back({std::min(far, end - step), std::max(far, end - step), Segment::kNobody});
  }
  for (Segment& segment : segments) {
    const bool must_fit = segment.owner != owner && is_tuned(segment.owner);
    if (must_fit && !fits(segment.owner, segment.from, segment.to))
      segment.owner = Segment::kNobody;
  }
  return segments;
}

std::optional<int> IntervalSettler::judge(int64_t tokens, int owner, int other) {
  const Candidate fallback = state_.space.fallback(tokens);
  bool owner_holds = true;
  if (is_tuned(owner)) {
    const auto held = holds(owner, tokens);
    if (!held) return std::nullopt;
    owner_holds = *held;
  }
  if (is_tuned(other) && fits(other, tokens, tokens)) {
    if (!owner_holds) {
      return holds(other, tokens).value_or(false) ? other : Segment::kNobody;
    }
    const Candidate& holder = is_tuned(owner) ? of(owner).chosen : fallback;
    const double owner_us = race_us(holder, other);
    const double other_us = race_us(of(other).chosen, other);
    const bool worth_it = owner_us <= 0 || owner_us > kWorthACrossover * other_us;
    if (worth_it && beats(other, holder, tokens)) return other;
  }
  if (owner_holds) return owner;
  return other >= 0 && !is_tuned(other) ? other : Segment::kNobody;
}

std::optional<bool> IntervalSettler::holds(int candidate, int64_t tokens) {
  const DuelResult duel =
      compare(meter_, {of(candidate).chosen, state_.space.fallback(tokens),
                       state_.spot(tokens, of(candidate).confirm_scale), Goal::kNoLoss, "interval",
                       deadline_s_, expected_us(candidate, tokens)});
  if (duel.challenger_failed || duel.outcome == Outcome::kLoss) return false;
  if (duel.outcome == Outcome::kNoLoss) return true;
  return std::nullopt;
}

// Shown on this size. Two near-equals could use up the zone's time here, and it would hardly matter
// who gets it.
bool IntervalSettler::beats(int challenger, const Candidate& holder, int64_t tokens) {
  constexpr double kShare = 0.3;
  const double now = meter_.elapsed_s();
  const DuelResult duel =
      compare(meter_, {of(challenger).chosen, holder,
                       state_.spot(tokens, of(challenger).confirm_scale), Goal::kGain, "interval",
                       now + kShare * (deadline_s_ - now), expected_us(challenger, tokens)});
  return duel.outcome == Outcome::kBetter;
}

// Times grow no faster than the number of tokens, and less than twofold within most intervals.
double IntervalSettler::expected_us(int bucket, int64_t tokens) const {
  const double at_bucket = moetune::expected_us(state_, of(bucket), of(bucket).confirm_scale);
  const double ratio = static_cast<double>(tokens) / static_cast<double>(of(bucket).tokens);
  return at_bucket * std::clamp(ratio, 0.5, 2.0);
}

double IntervalSettler::race_us(const Candidate& candidate, int at_bucket) const {
  const Spot spot = state_.spot(of(at_bucket).tokens, of(at_bucket).scale);
  const MeasurementRecord* record = meter_.known().timed(candidate, spot, -1);
  return record == nullptr ? 0 : record->time.median_us;
}

// The race at the next bucket, one token further on, had it among the incumbents.
bool IntervalSettler::held_in_race(int candidate, int at_bucket) const {
  const double fallback_us = race_us(state_.space.fallback(of(at_bucket).tokens), at_bucket);
  const double candidate_us = race_us(of(candidate).chosen, at_bucket);
  const double room = 1 + meter_.policy().veto_loss / 2;
  return candidate_us > 0 && candidate_us * room <= fallback_us;
}

bool IntervalSettler::fits(int bucket, int64_t from, int64_t to) const {
  const Candidate& candidate = of(bucket).chosen;
  const TunableRunner* runner = find_runner(state_.request.runners, candidate.runner);
  return runner != nullptr && why_unfit(*runner, candidate, from, to).empty();
}

Decision IntervalSettler::decision_of(const Segment& segment) const {
  Decision decision;
  decision.from = segment.from;
  decision.to = segment.to;
  if (segment.owner == Segment::kNobody) {
    decision.tokens = segment.from;
    decision.candidate = state_.space.fallback(segment.from);
    decision.evidence.note = "between buckets, where neither neighbour's choice is known to hold";
    return decision;
  }
  const BucketState& bucket = of(segment.owner);
  decision.tokens = bucket.tokens;
  decision.is_default = bucket.is_default;
  decision.candidate = bucket.is_default ? state_.space.fallback(bucket.tokens) : bucket.chosen;
  decision.evidence = bucket.evidence;
  return decision;
}

}  // namespace

std::vector<Decision> settle_intervals(TuneState& state) { return IntervalSettler(state).run(); }

}  // namespace moetune

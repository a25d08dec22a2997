// Confirming: each bucket's winner against the default at full size, then against other traffic.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tuner/decide.h"
#include "tuner/tune_state.h"

namespace moetune {
namespace {

// A winner that turns out wrong or is vetoed makes room for the next; one that is merely not faster
// does not, or the chance of a false gain would grow with every try. So many may be timed.
constexpr int kMostChallengers = 3;
// Where the race was on a part and samples of the whole are not dear, the likely winners are ranked
// on the whole first.
constexpr size_t kRerank = 4;
constexpr double kRerankShare = 0.2;

class BucketConfirmation {
 public:
  BucketConfirmation(TuneState& state, BucketState& bucket, double deadline_s)
      : state_(state),
        meter_(state.meter),
        bucket_(bucket),
        deadline_s_(deadline_s),
        spot_(state.spot(bucket.tokens, affordable_scale())),
        fallback_(state.space.fallback(bucket.tokens)) {}

  Status run();

 private:
  enum class Next { kGoOn, kNextChallenger, kDone };

  Scale affordable_scale();
  std::vector<Candidate> challengers();
  std::vector<Candidate> reranked(std::vector<Candidate> candidates);
  Next meet(const Candidate& challenger);
  Next verify(const Candidate& challenger);
  Next verify_and_veto(const Candidate& challenger);
  Next default_failed(const Error& error);
  void note_result(const Candidate& challenger, const DuelResult& duel);

  TuneState& state_;
  Meter& meter_;
  BucketState& bucket_;
  double deadline_s_;
  Spot spot_;
  Candidate fallback_;
  std::optional<Error> fallback_error_;
  int timed_ = 0;  // Challengers.
  bool refused_untimed_ = false;
};

// The whole layer, unless rounds on it are too dear for the time there is and the races were on a
// part. Where only what is known counts: the scale at which somebody was confirmed.
Scale BucketConfirmation::affordable_scale() {
  if (!meter_.may_measure()) {
    const Spot whole = state_.spot(bucket_.tokens, Scale::kFull);
    const Candidate fallback = state_.space.fallback(bucket_.tokens);
    const auto& ranking = bucket_.searches[state_.group].ranking;
    const bool on_whole = std::any_of(ranking.begin(), ranking.end(), [&](const Contender& c) {
      return meter_.known().compared(c.candidate, fallback, whole, "confirm") != nullptr;
    });
    return bucket_.confirm_scale = on_whole ? Scale::kFull : bucket_.scale;
  }
  const int rounds =
      meter_.policy().least_confirm_rounds + static_cast<int>(state_.request.veto_workloads.size());
  const double needed_s = 4e-6 * rounds * expected_us(state_, bucket_, Scale::kFull);
  const bool is_dear = needed_s > deadline_s_ - meter_.elapsed_s();
  return bucket_.confirm_scale = is_dear ? bucket_.scale : Scale::kFull;
}

// What was faster than the default in the race, best first.
std::vector<Candidate> BucketConfirmation::challengers() {
  std::vector<Candidate> candidates;
  for (const Contender& contender : bucket_.searches[state_.group].ranking) {
    if (contender.candidate == fallback_) break;
    if (meter_.is_out(contender.candidate, spot_)) continue;
    if (!is_exact(state_, contender.candidate, bucket_.tokens)) continue;
    candidates.push_back(contender.candidate);
  }
  return candidates;
}

std::vector<Candidate> BucketConfirmation::reranked(std::vector<Candidate> candidates) {
  if (bucket_.scale == spot_.scale || candidates.size() < 2) return candidates;
  const auto setting = meter_.setting(spot_, fallback_, expected_us(state_, bucket_, spot_.scale));
  if (!setting.ok() || setting->fallback_us * setting->calls > kDearUs) return candidates;
  candidates.resize(std::min(candidates.size(), kRerank));
  std::vector<Contender> contenders;
  for (const Candidate& candidate : candidates) {
    Contender& added = contenders.emplace_back();
    added.candidate = candidate;
    added.resources = state_.space.workspace_bytes(candidate, bucket_.tokens);
  }
  const double now = meter_.elapsed_s();
  const RaceTask task{spot_, -1, now + kRerankShare * (deadline_s_ - now), state_.request.seed};
  std::vector<Candidate> ranking;
  for (Contender& contender : race(meter_, task, std::move(contenders)).ranking) {
    ranking.push_back(std::move(contender.candidate));
  }
  return ranking;
}

Status BucketConfirmation::run() {
  const SearchResult& search = bucket_.searches[state_.group];
  Evidence& evidence = bucket_.evidence;
  meter_.begin("confirm", bucket_.tokens, 2);
  const std::vector<Candidate> candidates = reranked(challengers());
  if (candidates.empty()) {
    const bool all_tried = search.complete && search.fallback_us > 0;
    for (const Contender& contender : search.ranking) {
      if (contender.candidate != fallback_ || evidence.chosen.samples > 0) continue;
      evidence.fallback = contender.time;
      evidence.on_part = bucket_.scale == Scale::kSubset;
    }
    evidence.resolved = all_tried;
    const std::string over = meter_.why_over();
    evidence.note = all_tried           ? "no candidate was faster in the race"
                    : search.tried == 0 ? "not measured: " + over
                                        : over + " before every candidate was tried";
    return {};
  }
  for (size_t i = 0; i < candidates.size() && timed_ < kMostChallengers; ++i) {
    if (meter_.over(deadline_s_)) {
      evidence.note = std::string(meter_.why_over()) + " before the confirmation";
      return {};
    }
    const Next next = meet(candidates[i]);
    if (fallback_error_ && holds_everywhere(fallback_error_->code)) return *fallback_error_;
    if (next == Next::kDone) return {};
  }
  // Everybody who was faster was refused for good. Where that was before anything was timed, as a
  // race would have done, those behind them have not had their turn.
  if (refused_untimed_) bucket_.searches[state_.group].complete = false;
  evidence.resolved = search.complete;
  return {};
}

BucketConfirmation::Next BucketConfirmation::meet(const Candidate& challenger) {
  const DuelResult duel = compare(meter_, {challenger, fallback_, spot_, Goal::kGain, "confirm",
                                           deadline_s_, expected_us(state_, bucket_, spot_.scale)});
  if (duel.fallback_error) return default_failed(*duel.fallback_error);
  if (duel.challenger_failed) {
    refused_untimed_ = refused_untimed_ || duel.versus.rounds == 0;
    bucket_.evidence.note =
        fmt::format("the fastest candidate was rejected: {}", challenger.text());
    return Next::kNextChallenger;
  }
  note_result(challenger, duel);
  return duel.outcome == Outcome::kBetter ? verify_and_veto(challenger) : Next::kDone;
}

BucketConfirmation::Next BucketConfirmation::default_failed(const Error& error) {
  fallback_error_ = error;
  bucket_.evidence.note = fmt::format("the default itself failed: {}", error.message);
  return Next::kDone;
}

void BucketConfirmation::note_result(const Candidate& challenger, const DuelResult& duel) {
  Evidence& evidence = bucket_.evidence;
  if (duel.versus.rounds == 0) {
    evidence.note = std::string(meter_.why_over()) + " before the confirmation";
    return;
  }
  ++timed_;
  evidence.on_part = spot_.scale == Scale::kSubset;
  evidence.chosen = duel.time;
  evidence.fallback = duel.versus.against_time;
  evidence.speedup = duel.versus.speedup;
  evidence.speedup_low = duel.versus.low;
  evidence.speedup_high = duel.versus.high;
  evidence.challenger = challenger.text();
  evidence.resolved = duel.outcome != Outcome::kUnresolved;
  if (duel.outcome == Outcome::kNotBetter) {
    evidence.note = "the fastest candidate gains less than a change is worth";
  } else if (duel.outcome == Outcome::kUnresolved) {
    evidence.note =
        fmt::format("unresolved after {} rounds: the interval is {:.1f} % wide on either side",
                    duel.versus.rounds, 50 * (duel.versus.high - duel.versus.low));
  }
}

// Right after it was timed, and on another routing: a candidate that is right only at first is no
// candidate. Where there is other traffic to veto with, the check on that does the same.
BucketConfirmation::Next BucketConfirmation::verify(const Candidate& challenger) {
  const Status status = meter_.check(challenger, spot_, "verify", 1);
  if (status.ok()) return Next::kGoOn;
  if (status.error().code == ErrorCode::kInterrupted) {
    bucket_.evidence.note = std::string(meter_.why_over()) + " before the last check";
    return Next::kDone;
  }
  meter_.reject(challenger, spot_, status.error(), "verify");
  bucket_.evidence.note = fmt::format("{} was wrong after it was timed", challenger.text());
  return Next::kNextChallenger;
}

BucketConfirmation::Next BucketConfirmation::verify_and_veto(const Candidate& challenger) {
  Evidence& evidence = bucket_.evidence;
  evidence.resolved = false;
  if (state_.request.veto_workloads.empty()) {
    const Next next = verify(challenger);
    if (next != Next::kGoOn) return next;
  }
  for (const std::string& workload : state_.request.veto_workloads) {
    meter_.begin("veto", bucket_.tokens, 2);
    const DuelResult duel = compare(
        meter_, {challenger, fallback_, state_.spot(bucket_.tokens, spot_.scale, workload),
                 Goal::kNoLoss, "veto", deadline_s_, expected_us(state_, bucket_, spot_.scale)});
    if (duel.fallback_error) return default_failed(*duel.fallback_error);
    if (duel.challenger_failed) return Next::kNextChallenger;
    if (duel.outcome == Outcome::kLoss) {
      evidence.note = fmt::format("vetoed on {}: {:.3f}x", workload, duel.versus.speedup);
      return Next::kNextChallenger;
    }
    if (duel.outcome != Outcome::kNoLoss) {
      evidence.note = fmt::format("{} before {} was measured", meter_.why_over(), workload);
      return Next::kDone;
    }
  }
  bucket_.chosen = challenger;
  bucket_.is_default = false;
  evidence.challenger.clear();
  evidence.note.clear();
  evidence.resolved = true;
  return Next::kDone;
}

}  // namespace

namespace {

// Time goes where there is something to gain, and more of it to dear sizes, whose few samples cost
// the most.
std::vector<double> confirm_weights(const TuneState& state) {
  constexpr double kLeastGain = 0.005;
  std::vector<double> weights;
  for (const BucketState& bucket : state.buckets) {
    const SearchResult& search = bucket.searches[state.group];
    if (bucket.evidence.resolved) {
      weights.push_back(0);
      continue;
    }
    double gain = 0;
    if (!search.ranking.empty() && search.fallback_us > 0) {
      gain = search.fallback_us / search.ranking[0].time.median_us - 1;
    }
    weights.push_back(bucket.importance * std::max(kLeastGain, gain) *
                      std::sqrt(expected_us(state, bucket, bucket.scale)));
  }
  return weights;
}

}  // namespace

namespace {

// A gain that was confirmed is given up for a larger one that was confirmed too, and for nothing
// else. Both are over the default, at its side.
void keep_the_better(BucketState& bucket) {
  if (!bucket.before) return;
  const bool is_better =
      !bucket.is_default && bucket.evidence.resolved &&
      (bucket.before->is_default || bucket.evidence.speedup > bucket.before->evidence.speedup);
  if (!is_better) {
    bucket.chosen = std::move(bucket.before->chosen);
    bucket.is_default = bucket.before->is_default;
    bucket.evidence = std::move(bucket.before->evidence);
  }
  bucket.before.reset();
}

}  // namespace

Status confirm_buckets(TuneState& state, double end_s) {
  state.meter.use_layouts(state.layout_group().layouts);
  const std::vector<double> weights = confirm_weights(state);
  for (size_t i = 0; i < state.buckets.size(); ++i) {
    BucketState& bucket = state.buckets[i];
    if (bucket.evidence.resolved) continue;
    const SearchResult& search = bucket.searches[state.group];
    bucket.evidence.candidates = search.tried;
    bucket.evidence.rejected = search.rejected;
    const double deadline = share_deadline_s(state.meter.elapsed_s(), weights, i, end_s);
    state.begin_step(Step::kConfirmations, i, deadline);
    if (Status status = BucketConfirmation(state, bucket, deadline).run(); !status.ok()) {
      return status;
    }
    keep_the_better(bucket);
  }
  return {};
}

}  // namespace moetune

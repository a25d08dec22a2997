#include "tuner/tune_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace moetune {
namespace {

// Of each race's best this many go into the final race: the winner, and some in case it turns out
// wrong or is vetoed.
constexpr size_t kFinalistsPerRace = 3;
// Of a bucket's time, kept for the race of whole candidates.
constexpr double kFinalShare = 0.3;
// Of a bucket's time, at most, for telling which schemes are worth searching.
constexpr double kSchemeShare = 0.15;
// A scheme whose start is slower than this times the best start is not searched: tuning a stage
// seldom brings more.
constexpr double kHopelessScheme = 1.6;
// Candidates of a race's successor that compilers are told of, and how they rank by what is known:
// as times relative to the best.
constexpr size_t kCompiledAhead = 64;
constexpr double kNeighbourOfBase = 1.2;
constexpr double kUnknown = 1.5;

void add_once(std::vector<Candidate>& list, const Candidate& candidate) {
  if (std::find(list.begin(), list.end(), candidate) == list.end()) list.push_back(candidate);
}

bool shares_tactic(const std::vector<Candidate>& incumbents, const Candidate& candidate,
                   size_t stage) {
  return std::any_of(incumbents.begin(), incumbents.end(), [&](const Candidate& incumbent) {
    return incumbent.runner == candidate.runner && incumbent.scheme == candidate.scheme &&
           incumbent.stages[stage] == candidate.stages[stage];
  });
}

uint64_t race_seed(const Spot& spot, const std::string& where) {
  return Hash64()
      .add(spot.what.seed)
      .add(static_cast<uint64_t>(spot.what.tokens))
      .add(where)
      .value();
}

}  // namespace

SearchResult BucketSearch::run(const LayoutGroup& group, const Spot& spot, double deadline_s,
                               const std::vector<Candidate>& incumbents,
                               std::span<const Candidate> after) {
  const int64_t tokens = spot.what.tokens;
  const Scope scope{group, spot, deadline_s, space_.fallback(tokens), after};
  std::vector<Candidate> fitting;
  for (const Candidate& incumbent : incumbents) {
    if (space_.fits(incumbent, group, tokens)) add_once(fitting, incumbent);
  }
  SearchResult result;
  result.complete = true;
  finalists_.clear();
  tried_.clear();
  rejected_.clear();
  const double start = meter_.elapsed_s();
  const std::vector<Arm> arms = promising(scope, space_.arms(group, tokens),
                                          start + kSchemeShare * (deadline_s - start), fitting);
  const double arms_end = start + (1 - kFinalShare) * (deadline_s - start);
  for (size_t i = 0; i < arms.size(); ++i) {
    const double now = meter_.elapsed_s();
    const double share = (arms_end - now) / static_cast<double>(arms.size() - i);
    search_arm(scope, arms[i], now + share, fitting, result);
  }
  final_race(scope, fitting, result);
  result.tried = static_cast<int>(tried_.size() + rejected_.size());
  result.rejected = static_cast<int>(rejected_.size());
  return result;
}

void BucketSearch::compile_ahead(const LayoutGroup& group, const Spot& spot) {
  if (!meter_.may_measure()) return;
  const Scope scope{group, spot, 0, space_.fallback(spot.what.tokens), {}};
  const std::vector<Arm> arms = space_.arms(group, spot.what.tokens);
  std::vector<Candidate> ahead{scope.fallback};
  for (const Arm& arm : arms) add_once(ahead, arm.base);
  for (const Arm& arm : arms) {
    for (const Candidate& candidate : likely_later(scope, arm, 0, arm.base))
      add_once(ahead, candidate);
  }
  meter_.prefetch(ahead, spot);
}

void BucketSearch::note(const RaceResult& raced) {
  for (const Contender& ranked : raced.ranking) tried_.insert(ranked.candidate.text());
  for (const Candidate& rejected : raced.rejected) {
    tried_.erase(rejected.text());
    rejected_.insert(rejected.text());
  }
}

std::vector<Arm> BucketSearch::promising(const Scope& scope, std::vector<Arm> arms,
                                         double deadline_s,
                                         const std::vector<Candidate>& incumbents) {
  if (arms.size() < 2) return arms;
  std::vector<Contender> contenders;
  std::vector<Candidate> starts;
  const auto add = [&](const Candidate& candidate) {
    if (std::find(starts.begin(), starts.end(), candidate) != starts.end()) return;
    starts.push_back(candidate);
    contenders.push_back(contender(candidate, scope.spot, true));
  };
  for (const Arm& arm : arms) add(arm.base);
  for (const Candidate& incumbent : incumbents) add(incumbent);
  meter_.begin("race", scope.spot.what.tokens, static_cast<int>(contenders.size()));
  const RaceTask task{scope.spot, -1, deadline_s, race_seed(scope.spot, "schemes")};
  const RaceResult raced = race(meter_, task, std::move(contenders));
  note(raced);
  if (raced.ranking.empty()) return arms;
  const double limit = kHopelessScheme * raced.ranking[0].time.median_us;
  std::vector<Arm> kept;
  for (Arm& arm : arms) {
    // Of those of this scheme, the fastest comes first. A base that failed says nothing of the
    // scheme, and one that time did not suffice for is not there either.
    const auto found =
        std::find_if(raced.ranking.begin(), raced.ranking.end(), [&](const Contender& c) {
          return c.candidate.runner == arm.base.runner && c.candidate.scheme == arm.base.scheme;
        });
    if (found != raced.ranking.end() && found->time.median_us > limit) continue;
    if (found != raced.ranking.end()) arm.base = found->candidate;
    kept.push_back(std::move(arm));
  }
  return kept;
}

void BucketSearch::search_arm(const Scope& scope, const Arm& arm, double deadline_s,
                              const std::vector<Candidate>& incumbents, SearchResult& result) {
  const size_t stages = arm.scheme->stages.size();
  Candidate base = arm.base;
  std::vector<Candidate> close;  // Put together with what came close in one stage.
  for (size_t stage = 0; stage < stages; ++stage) {
    const double now = meter_.elapsed_s();
    const double share = (deadline_s - now) / static_cast<double>(stages - stage);
    const RaceResult raced = race_stage(scope, arm, stage, base, now + share, incumbents);
    note(raced);
    result.complete = result.complete && raced.complete;
    if (raced.ranking.empty()) {
      result.complete = false;
      return;
    }
    base = raced.ranking[0].candidate;
    const size_t last = std::min(raced.ranking.size(), kFinalistsPerRace);
    for (Candidate& other : close) other.stages[stage] = base.stages[stage];
    for (size_t i = 1; i < last; ++i) {
      close.push_back(raced.ranking[i].candidate);
    }
  }
  add_once(finalists_, base);
  for (const Candidate& candidate : close) {
    if (space_.fits(candidate, scope.group, scope.spot.what.tokens))
      add_once(finalists_, candidate);
  }
}

// Of a stage that comes later: what ran well nearby, best first, then what differs least from the
// base.
std::vector<Candidate> BucketSearch::likely_later(const Scope& scope, const Arm& arm, size_t stage,
                                                  const Candidate& base) {
  if (stage >= arm.scheme->stages.size()) return {};
  const std::string where =
      fmt::format("{}/{}/{}", base.runner, base.scheme, arm.scheme->stages[stage].name);
  const StageTimes& seen = seen_[where];
  std::vector<std::pair<double, Candidate>> order;
  for (Candidate& candidate :
       space_.variations(arm, scope.group, stage, base, scope.spot.what.tokens)) {
    const auto found = seen.find(candidate.stages[stage].tactic.text());
    const double unlikely = found != seen.end()                        ? found->second
                            : differ_in_one_parameter(candidate, base) ? kNeighbourOfBase
                                                                       : kUnknown;
    order.emplace_back(unlikely, std::move(candidate));
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  order.resize(std::min(order.size(), kCompiledAhead));
  std::vector<Candidate> likely;
  for (auto& [unlikely, candidate] : order) likely.push_back(std::move(candidate));
  return likely;
}

RaceResult BucketSearch::race_stage(const Scope& scope, const Arm& arm, size_t stage,
                                    const Candidate& base, double deadline_s,
                                    const std::vector<Candidate>& incumbents) {
  const StageSpace& stage_space = arm.scheme->stages[stage];
  const std::string where = fmt::format("{}/{}/{}", base.runner, base.scheme, stage_space.name);
  StageTimes& seen = seen_[where];
  std::set<std::string>& bad = bad_[where];
  std::vector<Contender> contenders;
  for (const Candidate& candidate :
       space_.variations(arm, scope.group, stage, base, scope.spot.what.tokens)) {
    const std::string tactic = candidate.stages[stage].tactic.text();
    if (candidate != base && bad.contains(tactic)) continue;
    const bool pinned = candidate == base || shares_tactic(incumbents, candidate, stage);
    Contender& added = contenders.emplace_back(contender(candidate, scope.spot, pinned));
    const auto expected = seen.find(tactic);
    if (expected != seen.end()) added.expected = expected->second;
  }
  meter_.begin("race", scope.spot.what.tokens, static_cast<int>(contenders.size()));
  const bool is_whole = arm.scheme->stages.size() == 1;
  std::vector<Candidate> later = likely_later(scope, arm, stage + 1, base);
  later.insert(later.end(), scope.after.begin(), scope.after.end());
  const RaceTask task{scope.spot,        is_whole ? -1 : static_cast<int>(stage),
                      deadline_s,        race_seed(scope.spot, where),
                      std::move(later),
                      /*is_search=*/true};
  RaceResult raced = race(meter_, task, std::move(contenders));
  for (const Candidate& rejected : raced.rejected) {
    const MeasurementRecord* record = meter_.known().rejected(rejected, scope.spot);
    const bool everywhere = record != nullptr && holds_everywhere(record->rejected_as);
    if (everywhere && rejected != base) bad.insert(rejected.stages[stage].tactic.text());
  }
  for (const Contender& ranked : raced.ranking) {
    seen[ranked.candidate.stages[stage].tactic.text()] =
        ranked.time.median_us / raced.ranking[0].time.median_us;
  }
  return raced;
}

void BucketSearch::final_race(const Scope& scope, const std::vector<Candidate>& incumbents,
                              SearchResult& result) {
  std::vector<Contender> contenders;
  contenders.push_back(contender(scope.fallback, scope.spot, true));
  const auto add = [&](const Candidate& candidate, bool pinned) {
    const bool is_there = std::any_of(contenders.begin(), contenders.end(),
                                      [&](const Contender& c) { return c.candidate == candidate; });
    if (!is_there) contenders.push_back(contender(candidate, scope.spot, pinned));
  };
  for (const Candidate& incumbent : incumbents) add(incumbent, true);
  for (const Candidate& finalist : finalists_) add(finalist, false);
  const RaceTask task{scope.spot, -1, scope.deadline_s, race_seed(scope.spot, "final")};
  RaceResult raced = race(meter_, task, std::move(contenders));
  note(raced);
  result.complete = result.complete && raced.complete;
  result.ranking = std::move(raced.ranking);
  for (const Contender& ranked : result.ranking) {
    if (ranked.candidate == scope.fallback) result.fallback_us = ranked.time.median_us;
  }
}

Contender BucketSearch::contender(const Candidate& candidate, const Spot& spot, bool pinned) const {
  Contender made;
  made.candidate = candidate;
  made.pinned = pinned;
  made.resources = space_.workspace_bytes(candidate, spot.what.tokens);
  return made;
}

}  // namespace moetune

#include "tuner/tune_space.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "tuner/fit.h"

namespace moetune {
namespace {

// Combinations of stages that a search for a fitting one looks at. Only spaces whose stages depend
// on each other, or on the layout, are searched at all, and those of real runners are ten times
// smaller.
constexpr int64_t kMostCombinations = 20000;
constexpr size_t kLikelyPerStage = 16;

using Points = std::vector<std::vector<Tactic>>;  // by stage

// Calls `visit` with every combination of the stages' tactics, up to kMostCombinations.
void for_each_combination(const Candidate& prototype, const Points& points,
                          const std::function<void(const Candidate&)>& visit) {
  int64_t product = 1;
  for (const auto& stage : points) {
    product = std::min(product * static_cast<int64_t>(stage.size()), kMostCombinations);
  }
  Candidate candidate = prototype;
  for (int64_t index = 0; index < product; ++index) {
    int64_t rest = index;
    for (size_t s = points.size(); s-- > 0;) {
      const auto count = static_cast<int64_t>(points[s].size());
      candidate.stages[s].tactic = points[s][static_cast<size_t>(rest % count)];
      rest /= count;
    }
    visit(candidate);
  }
}

Candidate prototype_of(const TunableRunner& runner, const Scheme& scheme) {
  Candidate candidate{runner.name(), runner.version(), scheme.name, {}};
  for (const StageSpace& stage : scheme.stages) candidate.stages.push_back({stage.name, {}});
  return candidate;
}

// How many parameters agree, by name, wherever they stand: schemes differ in stages but share
// names.
int likeness(const Candidate& a, const Candidate& b) {
  int agreeing = 0;
  for (size_t s = 0; s < a.stages.size(); ++s) {
    const Candidate::Stage& stage = a.stages[s];
    const auto same_name =
        std::find_if(b.stages.begin(), b.stages.end(),
                     [&](const Candidate::Stage& other) { return other.name == stage.name; });
    const Tactic* reference = same_name != b.stages.end() ? &same_name->tactic
                              : s < b.stages.size()       ? &b.stages[s].tactic
                                                          : nullptr;
    if (reference == nullptr) continue;
    for (const auto& [name, value] : stage.tactic.parameters()) {
      const ParameterValue* other = reference->find(name);
      agreeing += other != nullptr && *other == value;
    }
  }
  return agreeing;
}

}  // namespace

CandidateSpace::CandidateSpace(std::span<TunableRunner* const> runners, const Buckets& buckets,
                               bool has_weights)
    : runners_(runners.begin(), runners.end()) {
  if (has_weights) {
    find_groups(buckets);
    return;
  }
  LayoutGroup all{{}, true};
  std::set<std::string> seen;
  for (TunableRunner* runner : runners_) {
    const std::string layout = runner->layout(runner->default_candidate(buckets.maximum()));
    if (seen.insert(runner->name()).second) all.layouts.push_back({runner->name(), layout});
  }
  groups_.push_back(std::move(all));
}

void CandidateSpace::find_groups(const Buckets& buckets) {
  const Candidate first = fallback(buckets.maximum());
  groups_.push_back({{{first.runner, runners_[0]->layout(first)}}, true});
  for (TunableRunner* runner : runners_) {
    for (const std::string& layout : runner->layouts()) {
      const WeightLayout one{runner->name(), layout};
      const bool is_there =
          std::any_of(groups_.begin(), groups_.end(),
                      [&](const LayoutGroup& group) { return group.layouts[0] == one; });
      if (!is_there) groups_.push_back({{one}, false});
    }
  }
}

const Points& CandidateSpace::points_of(const Scheme& scheme, int64_t tokens) const {
  if (points_at_ != tokens) points_.clear();
  points_at_ = tokens;
  const auto [known, is_new] = points_.try_emplace(&scheme);
  if (is_new) {
    for (const StageSpace& stage : scheme.stages)
      known->second.push_back(stage.space.points(tokens));
  }
  return known->second;
}

bool CandidateSpace::fit_together(const Candidate& candidate, const LayoutGroup& group,
                                  int64_t tokens) const {
  const TunableRunner* runner = find_runner(runners_, candidate.runner);
  if (runner == nullptr || !runner->why_excluded(candidate, tokens).empty()) return false;
  const WeightLayout layout{candidate.runner, runner->layout(candidate)};
  return std::find(group.layouts.begin(), group.layouts.end(), layout) != group.layouts.end();
}

bool CandidateSpace::fits(const Candidate& candidate, const LayoutGroup& group,
                          int64_t tokens) const {
  const TunableRunner* runner = find_runner(runners_, candidate.runner);
  return runner != nullptr && why_unfit(*runner, candidate, tokens).empty() &&
         fit_together(candidate, group, tokens);
}

std::vector<Arm> CandidateSpace::arms(const LayoutGroup& group, int64_t tokens) const {
  const Candidate first = fallback(tokens);
  std::vector<Arm> arms;
  for (TunableRunner* runner : runners_) {
    const bool in_group =
        std::any_of(group.layouts.begin(), group.layouts.end(),
                    [&](const WeightLayout& layout) { return layout.runner == runner->name(); });
    if (!in_group) continue;
    const Candidate own_default = runner->default_candidate(tokens);
    for (const Scheme& scheme : runner->schemes()) {
      Arm arm{runner, &scheme, prototype_of(*runner, scheme)};
      const bool is_default = own_default.scheme == scheme.name && fits(own_default, group, tokens);
      const auto base =
          is_default ? own_default : closest(arm, group, own_default, std::nullopt, tokens);
      if (!base) continue;
      arm.base = *base;
      const bool goes_first = arm.base == first;
      arms.insert(goes_first ? arms.begin() : arms.end(), std::move(arm));
    }
  }
  return arms;
}

std::optional<Candidate> CandidateSpace::closest(const Arm& arm, const LayoutGroup& group,
                                                 const Candidate& target,
                                                 std::optional<size_t> fixed_stage,
                                                 int64_t tokens) const {
  Points points = points_of(*arm.scheme, tokens);
  if (fixed_stage) points[*fixed_stage] = {target.stages[*fixed_stage].tactic};
  const Candidate prototype = prototype_of(*arm.runner, *arm.scheme);
  std::optional<Candidate> best;
  int best_likeness = -1;
  const auto consider = [&](const Candidate& c) {
    const int found = likeness(c, target);
    if (found <= best_likeness || !fit_together(c, group, tokens)) return;
    best = c;
    best_likeness = found;
  };
  // Where stages do not depend on each other, the closest of each make the closest of all.
  Points likely = points;
  for (size_t s = 0; s < likely.size(); ++s) {
    std::vector<std::pair<int, size_t>> order;
    Candidate one = prototype;
    for (size_t i = 0; i < likely[s].size(); ++i) {
      one.stages[s].tactic = likely[s][i];
      order.emplace_back(-likeness(one, target), i);
    }
    std::sort(order.begin(), order.end());
    order.resize(std::min(order.size(), kLikelyPerStage));
    std::vector<Tactic> kept;
    for (const auto& [unlikeness, i] : order) kept.push_back(std::move(likely[s][i]));
    likely[s] = std::move(kept);
  }
  for_each_combination(prototype, likely, consider);
  if (!best) for_each_combination(prototype, points, consider);
  return best;
}

std::vector<Candidate> CandidateSpace::variations(const Arm& arm, const LayoutGroup& group,
                                                  size_t stage, const Candidate& base,
                                                  int64_t tokens) const {
  std::vector<Candidate> found{base};
  for (const Tactic& tactic : points_of(*arm.scheme, tokens)[stage]) {
    if (tactic == base.stages[stage].tactic) continue;
    Candidate candidate = base;
    candidate.stages[stage].tactic = tactic;
    if (fit_together(candidate, group, tokens)) {
      found.push_back(std::move(candidate));
    } else if (stage == 0 && arm.scheme->stages.size() > 1) {
      if (auto adapted = closest(arm, group, candidate, stage, tokens)) {
        found.push_back(*std::move(adapted));
      }
    }
  }
  return found;
}

size_t CandidateSpace::workspace_bytes(const Candidate& candidate, int64_t tokens) const {
  const TunableRunner* runner = find_runner(runners_, candidate.runner);
  return runner == nullptr ? 0 : runner->workspace_bytes(candidate, tokens);
}

}  // namespace moetune

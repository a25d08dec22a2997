// All candidates of all runners, sorted by what can be held in memory together: one plan has one
// weight layout, so candidates compete in groups that share one, and groups compete as whole plans.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moetune/measuring.h"
#include "moetune/profile.h"
#include "moetune/runner.h"

namespace moetune {

/// Candidates that one packing of the weights serves. Without weights there is nothing to pack, and
/// all belong together.
struct LayoutGroup {
  std::vector<WeightLayout> layouts;  ///< One; of an operator without weights, every runner's.
  bool has_default = false;           ///< The default, which is there at every size, is in it.
};

/// A scheme of a runner, with the candidate of the group that is closest to the default.
struct Arm {
  TunableRunner* runner = nullptr;
  const Scheme* scheme = nullptr;
  Candidate base;
};

/// Not thread-safe.
class CandidateSpace {
 public:
  /// The runners must outlive the space. `has_weights` false: one group for everything.
  CandidateSpace(std::span<TunableRunner* const> runners, const Buckets& buckets, bool has_weights);

  const std::vector<LayoutGroup>& groups() const { return groups_; }
  /// Candidate 0: what runs at this size without tuning.
  Candidate fallback(int64_t tokens) const { return runners_[0]->default_candidate(tokens); }

  /// Whether the candidate can run at `tokens` with what the group packs.
  bool fits(const Candidate& candidate, const LayoutGroup& group, int64_t tokens) const;
  /// One arm per scheme that has any candidate here, the default's first.
  std::vector<Arm> arms(const LayoutGroup& group, int64_t tokens) const;
  /// `base`, and `base` with each other tactic in that stage, as far as they fit. In the first
  /// stage, a tactic that does not fit to the base's other stages brings some along that do: the
  /// closest to the base's.
  std::vector<Candidate> variations(const Arm& arm, const LayoutGroup& group, size_t stage,
                                    const Candidate& base, int64_t tokens) const;

  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const;

 private:
  using Points = std::vector<std::vector<Tactic>>;  // by stage

  void find_groups(const Buckets& buckets);
  /// The scheme's tactics at `tokens`, by stage. Valid until another size is asked for.
  const Points& points_of(const Scheme& scheme, int64_t tokens) const;
  /// fits() for a candidate whose tactics are each allowed in their stage.
  bool fit_together(const Candidate& candidate, const LayoutGroup& group, int64_t tokens) const;
  std::optional<Candidate> closest(const Arm& arm, const LayoutGroup& group,
                                   const Candidate& target, std::optional<size_t> fixed_stage,
                                   int64_t tokens) const;

  std::vector<TunableRunner*> runners_;
  std::vector<LayoutGroup> groups_;
  // Working a space off rule by rule takes milliseconds, and a search asks for it again and again.
  mutable int64_t points_at_ = -1;
  mutable std::map<const Scheme*, Points> points_;
};

}  // namespace moetune

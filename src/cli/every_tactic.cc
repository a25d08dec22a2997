#include "cli/every_tactic.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "tuner/deterministic_runner.h"
#include "tuner/tune_space.h"

namespace moetune::cli {
namespace {

std::vector<Candidate> tactics_at(const CandidateSpace& space, int64_t tokens,
                                  const EveryTactic& which) {
  std::vector<Candidate> all;
  for (const LayoutGroup& group : space.groups()) {
    for (const Arm& arm : space.arms(group, tokens)) {
      for (size_t stage = 0; stage < arm.base.stages.size(); ++stage) {
        for (Candidate& candidate : space.variations(arm, group, stage, arm.base, tokens))
          all.push_back(std::move(candidate));
      }
    }
  }
  const size_t count = std::min(which.limit, all.size());
  Random random(which.seed, static_cast<uint64_t>(tokens));
  for (size_t i = 0; i < count; ++i) {
    std::swap(all[i], all[i + random.below(static_cast<uint32_t>(all.size() - i))]);
  }
  all.resize(count);
  return all;
}

}  // namespace

std::vector<std::vector<Candidate>> every_tactic(std::span<TunableRunner* const> runners,
                                                 const Buckets& sizes, const EveryTactic& which) {
  const DeterministicRunners only(runners);
  const CandidateSpace space(which.deterministic ? only.pointers() : runners, sizes,
                             /*has_weights=*/true);
  std::vector<std::vector<Candidate>> lists;
  for (const int64_t tokens : sizes.sizes()) lists.push_back(tactics_at(space, tokens, which));
  return lists;
}

}  // namespace moetune::cli

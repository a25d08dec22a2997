#include "cli/candidates.h"

#include <vector>

namespace moetune::cli {
namespace {

/// Counts through all combinations of one tactic per stage. False: that was the last one.
bool advance(std::vector<size_t>& digits, const std::vector<std::vector<Tactic>>& stages) {
  for (size_t stage = stages.size(); stage-- > 0;) {
    if (++digits[stage] < stages[stage].size()) return true;
    digits[stage] = 0;
  }
  return false;
}

bool visit_scheme(const TunableRunner& runner, const Scheme& scheme, int64_t tokens,
                  const std::function<bool(const Candidate&)>& visit) {
  std::vector<std::vector<Tactic>> stages;
  for (const StageSpace& stage : scheme.stages) {
    stages.push_back(stage.space.points(tokens));
    if (stages.back().empty()) return true;
  }
  std::vector<size_t> digits(stages.size(), 0);
  do {
    Candidate candidate{runner.name(), runner.version(), scheme.name, {}};
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      candidate.stages.push_back({scheme.stages[stage].name, stages[stage][digits[stage]]});
    }
    if (runner.why_excluded(candidate, tokens).empty() && !visit(candidate)) return false;
  } while (advance(digits, stages));
  return true;
}

}  // namespace

void for_each_candidate(const TunableRunner& runner, int64_t tokens,
                        const std::function<bool(const Candidate&)>& visit) {
  for (const Scheme& scheme : runner.schemes()) {
    if (!visit_scheme(runner, scheme, tokens, visit)) return;
  }
}

}  // namespace moetune::cli

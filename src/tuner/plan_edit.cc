#include "tuner/plan_edit.h"

#include <algorithm>

namespace moetune {

Decision unmeasured(const Candidate& fallback, int64_t from, int64_t to) {
  Decision decision;
  decision.tokens = decision.from = from;
  decision.to = to;
  decision.candidate = fallback;
  decision.evidence.note = "not measured";
  return decision;
}

Plan with_decision(Plan plan, Decision decision, const Candidate& fallback) {
  const int64_t end = plan.decisions.empty() ? 0 : plan.decisions.back().to;
  std::vector<Decision> decisions;
  for (Decision& other : plan.decisions) {
    if (other.from < decision.from) {
      Decision& before = decisions.emplace_back(other);
      before.to = std::min(other.to, decision.from - 1);
    }
    if (other.to > decision.to) {
      Decision& after = decisions.emplace_back(std::move(other));
      after.from = std::max(after.from, decision.to + 1);
    }
  }
  if (decision.from > end + 1) {
    decisions.push_back(unmeasured(fallback, end + 1, decision.from - 1));
  }
  decisions.push_back(std::move(decision));
  std::sort(decisions.begin(), decisions.end(),
            [](const Decision& a, const Decision& b) { return a.from < b.from; });
  plan.decisions = std::move(decisions);
  plan.max_tokens = plan.decisions.back().to;
  return plan;
}

}  // namespace moetune

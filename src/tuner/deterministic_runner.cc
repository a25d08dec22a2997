#include "tuner/deterministic_runner.h"

#include <fmt/format.h>

namespace moetune {

std::string why_not_deterministic(const TunableRunner& runner, const Candidate& candidate) {
  if (runner.is_deterministic(candidate)) return {};
  return "it does not sum in the same order on every run, which the deterministic mode asks for";
}

std::string DeterministicRunner::why_excluded(const Candidate& candidate, int64_t tokens) const {
  std::string reason = why_not_deterministic(runner_, candidate);
  return reason.empty() ? runner_.why_excluded(candidate, tokens) : reason;
}

DeterministicRunners::DeterministicRunners(std::span<TunableRunner* const> runners) {
  for (TunableRunner* runner : runners)
    pointers_.push_back(
        runners_.emplace_back(std::make_unique<DeterministicRunner>(*runner)).get());
}

}  // namespace moetune

// Runners whose candidates all keep to one order of sums: what the deterministic mode tunes with.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tuner/forwarding_runner.h"

namespace moetune {

/// The runner it is made from, which must outlive it, except that it excludes candidates that are
/// not deterministic.
class DeterministicRunner final : public ForwardingRunner {
 public:
  using ForwardingRunner::ForwardingRunner;
  std::string why_excluded(const Candidate& candidate, int64_t tokens) const override;
};

/// One for each of some runners, in their order.
class DeterministicRunners {
 public:
  explicit DeterministicRunners(std::span<TunableRunner* const> runners);
  std::span<TunableRunner* const> pointers() const { return pointers_; }

 private:
  std::vector<std::unique_ptr<DeterministicRunner>> runners_;
  std::vector<TunableRunner*> pointers_;
};

/// Why a candidate is out in the deterministic mode; empty where it is not.
std::string why_not_deterministic(const TunableRunner& runner, const Candidate& candidate);

}  // namespace moetune

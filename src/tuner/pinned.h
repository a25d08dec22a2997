// Whether a configuration says, by itself, all that is to run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moetune/plan.h"
#include "moetune/runner.h"

namespace moetune {

/// What is asked of a configuration in the pinned mode.
struct PinRequest {
  const DeviceProperties& device;
  const Problem& problem;
  std::span<TunableRunner* const> runners;  ///< The default's first.
  int64_t max_tokens = 0;                   ///< Every size up to this is to be covered.
  bool deterministic = false;
};

/// Each way in which the configuration is not for that: another device, no plan of the problem
/// (with what the likest one has otherwise), sizes that its plan does not cover, decisions that
/// today's runners cannot follow to the letter. Empty: its plan can be pinned.
std::vector<std::string> pin_mismatches(const TunedConfiguration& configuration,
                                        const PinRequest& request);

}  // namespace moetune

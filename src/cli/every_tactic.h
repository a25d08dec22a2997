// What `moetune verify --all` checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moetune/profile.h"
#include "moetune/runner.h"

namespace moetune::cli {

/// Which tactics are asked for.
struct EveryTactic {
  size_t limit = 0;  ///< At each number of tokens, drawn at random.
  uint64_t seed = 0;
  /// Only candidates with TunableRunner::is_deterministic(): nothing else can run in that mode.
  bool deterministic = false;
};

/// Every tactic of every stage, layout and runner at each of `sizes`, the other stages as near to
/// their default as fits. One list for each size.
std::vector<std::vector<Candidate>> every_tactic(std::span<TunableRunner* const> runners,
                                                 const Buckets& sizes, const EveryTactic& which);

}  // namespace moetune::cli

// Runners whose kernels live in a host of other kernels: this process knows their spaces and
// defaults, and the host compiles and runs them.
//
// A space comes over once, as parameters; what it excludes is asked for at each number of tokens,
// and remembered. A default, and what another tool has found, may lie outside of what the host
// searches (an engine's heuristic need not keep to its tuner's lists): such tactics belong to the
// space as single points, and no other point gets their values.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moetune/result.h"
#include "moetune/runner.h"
#include "worker/worker_host.h"

namespace moetune {

/// What a host offers for a problem.
struct HostedKernels {
  std::vector<std::unique_ptr<TunableRunner>> runners;  ///< At least one.
  std::map<std::string, std::string> versions;          ///< {"vllm", "0.11.0"}, {"triton", ...}
  std::string device_name;                              ///< As the host sees it.
};

/// A default and where it begins to hold.
struct DefaultInterval {
  int64_t from = 1;
  Candidate candidate;
  bool operator==(const DefaultInterval&) const = default;
};

/// What another tool has found for a number of tokens.
struct Suggestion {
  int64_t tokens = 1;
  Tactic tactic;  ///< Parameters that it does not have are taken from the default at `tokens`.
};

/// The candidate that it is with this runner, one of describe_kernels() with that suggestion.
/// Nothing where the runner has several stages, or lacks one of its parameters.
std::optional<Candidate> suggested_candidate(const TunableRunner& runner,
                                             const Suggestion& suggestion);

/// What a host could not say of the spaces of a runner out of describe_kernels(), so that points
/// which it excludes may have been tried: in words, naming the runner. Empty: nothing, or another
/// runner.
std::string hosted_trouble(const TunableRunner& runner);

/// The defaults of a runner out of describe_kernels(); empty for another one.
std::vector<DefaultInterval> default_intervals(const TunableRunner& runner);

/// Asks the host what it has for `place`. `suggested` are points of the space of every runner that
/// has those parameters, whatever it searches by itself. Errors as of make_worker_executor();
/// kUnsupported where the host has nothing, with its reason, and kParse where what it says makes no
/// sense.
///
/// The runners ask the host as long as they live, from the thread that tunes; they compile, pack
/// and run nothing in this process (kUnsupported).
Result<HostedKernels> describe_kernels(const std::shared_ptr<WorkerHost>& host,
                                       const WorkerPlace& place,
                                       const std::vector<Suggestion>& suggested = {});

}  // namespace moetune

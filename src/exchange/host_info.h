// What a plan says of the engine that its kernels were hosted in while it was tuned: the member
// "host" of a plan in a tuned configuration.
//
//   "host": {"name": "vllm", "versions": {"vllm": "0.11.0", "triton": "3.4.0"},
//            "device_name": "NVIDIA H200",
//            "defaults": [{"from": 1, "stages": [{"name": "main", "tactic": {...}}]},
//                         {"from": 65, "stages": [...]}]}
//
// An engine's own default changes with the number of tokens. Each of `defaults` holds from its
// number up to the next one's, the last for all above.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exchange/engine.h"
#include "moetune/plan.h"
#include "moetune/result.h"

namespace moetune::exchange {

/// A value type.
struct HostInfo {
  struct Default {
    int64_t from = 0;
    Candidate candidate;  ///< Stages only.
  };

  std::string name;                             ///< "vllm"
  std::map<std::string, std::string> versions;  ///< Of Python packages.
  std::string device_name;                      ///< As the engine has it: "NVIDIA H200".
  std::vector<Default> defaults;                ///< Ascending; empty, or from 1 on.

  /// Of a package; not known where the host did not say, or says no version.
  Version version(const std::string& package) const;
};

/// Nothing where the plan has no such member. kParse, naming the place, where it makes no sense.
Result<std::optional<HostInfo>> host_of(const Plan& plan);

}  // namespace moetune::exchange

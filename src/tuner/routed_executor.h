// Candidates of several runners, each run where its runner is at home: in this process, in a helper
// of ours, in a host of other kernels.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "moetune/measuring.h"

namespace moetune {

/// An executor that hands every candidate to the one that `by_runner` names for its runner, and
/// loads and selects everywhere. They must outlive it. kNotFound for a runner without one.
std::unique_ptr<Executor> make_routed_executor(std::map<std::string, Executor*> by_runner);

}  // namespace moetune

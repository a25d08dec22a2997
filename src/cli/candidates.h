// Everything a runner could be told to do.
#pragma once

#include <cstdint>
#include <functional>

#include "moetune/runner.h"

namespace moetune::cli {

/// Calls `visit` with every candidate of every scheme that the runner allows at `tokens`, in the
/// order of its schemes and spaces, until it returns false.
void for_each_candidate(const TunableRunner& runner, int64_t tokens,
                        const std::function<bool(const Candidate&)>& visit);

}  // namespace moetune::cli

// What kernels of faulty_operator.h do wrong.
#pragma once

#include <string_view>

#include "fault/operator/faulty_operator.h"
#include "moetune/runner.h"

namespace moetune::testing {

/// Misbehaves, or not, as that kind does when it is compiled.
void compile_faulty(std::string_view kind);

/// One run of that kind, its `runs`-th: doubles, unless the kind's fault is another one.
Status run_faulty(std::string_view kind, const Call& call, int runs, FaultyDevice& device);

}  // namespace moetune::testing

// From a request to what the compiler gets: every included source, and all options.
#pragma once

#include <string>

#include "cuda/compile.h"
#include "cuda/jit.h"
#include "moetune/result.h"

namespace moetune::cuda {

/// The job of a request. kInvalidArgument for no kernels or an include that is not embedded.
Result<CompileJob> make_compile_job(const CompileRequest& request);

/// What a compiled program is found by: 64 hexadecimal digits over the job and the compiler's
/// version.
std::string compile_key(const CompileJob& job, const std::string& compiler);

}  // namespace moetune::cuda

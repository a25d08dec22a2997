// Kernels of the mma family, compiled and loaded.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cuda/context.h"
#include "cuda/jit.h"
#include "cuda/module.h"
#include "moetune/result.h"

namespace moetune::cuda {

struct ProgramRequest {
  std::string label;                 ///< For messages.
  std::string source;                ///< "cuda/kernels/gemm_tile.cuh"
  std::vector<std::string> kernels;  ///< Name expressions.
  int shared_bytes = 0;              ///< Dynamic, of each kernel.
};

CompileRequest compile_request(const ProgramRequest& request, const Architecture& arch);

/// The kernels in the order of the request, through default_jit().
Result<std::vector<Kernel>> load_program(const ContextPtr& context, const ProgramRequest& request);
/// Several at once: compiled in parallel.
Result<std::vector<std::vector<Kernel>>> load_programs(const ContextPtr& context,
                                                       std::span<const ProgramRequest> requests);

}  // namespace moetune::cuda

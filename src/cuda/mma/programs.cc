#include "cuda/mma/programs.h"

#include <fmt/format.h>

#include "base/status_macros.h"

namespace moetune::cuda {

CompileRequest compile_request(const ProgramRequest& request, const Architecture& arch) {
  CompileRequest compile;
  compile.label = request.label;
  compile.arch = arch;
  compile.source = fmt::format("#include \"{}\"\n", request.source);
  compile.kernels = request.kernels;
  return compile;
}

Result<std::vector<std::vector<Kernel>>> load_programs(const ContextPtr& context,
                                                       std::span<const ProgramRequest> requests) {
  std::vector<CompileRequest> compile;
  for (const ProgramRequest& request : requests)
    compile.push_back(compile_request(request, context->architecture()));
  std::vector<std::vector<Kernel>> loaded;
  std::vector<Result<CompiledProgramPtr>> programs = default_jit().compile_all(compile);
  for (size_t i = 0; i < requests.size(); ++i) {
    MOETUNE_ASSIGN_OR_RETURN(CompiledProgramPtr program, std::move(programs[i]));
    MOETUNE_ASSIGN_OR_RETURN(const Module module, Module::load(context, std::move(program)));
    std::vector<Kernel>& kernels = loaded.emplace_back();
    for (size_t k = 0; k < requests[i].kernels.size(); ++k) {
      MOETUNE_ASSIGN_OR_RETURN(kernels.emplace_back(), module.kernel(k, requests[i].shared_bytes));
    }
  }
  return loaded;
}

Result<std::vector<Kernel>> load_program(const ContextPtr& context, const ProgramRequest& request) {
  MOETUNE_ASSIGN_OR_RETURN(auto loaded, load_programs(context, std::span(&request, 1)));
  return std::move(loaded.front());
}

}  // namespace moetune::cuda

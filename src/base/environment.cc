#include "base/environment.h"

#include <array>
#include <cstdlib>

namespace moetune {
namespace {

constexpr std::array kVariables = {
    VariableInfo{Variable::kDefault, "MOETUNE_DEFAULT",
                 "1: ignore every tuning result and run defaults only"},
    VariableInfo{Variable::kConfig, "MOETUNE_CONFIG",
                 "file of the tuned configuration, instead of the one in the cache folder"},
    VariableInfo{
        Variable::kCpuIsa, "MOETUNE_CPU_ISA",
        "most capable instruction set the CPU kernels may use: portable, avx2, avx512, ..."},
    VariableInfo{Variable::kCpuThreads, "MOETUNE_CPU_THREADS",
                 "number of threads of the CPU kernels, instead of one per core"},
    VariableInfo{Variable::kXdgCacheHome, "XDG_CACHE_HOME",
                 "parent of the cache folder moetune/, instead of $HOME/.cache"},
    VariableInfo{Variable::kHome, "HOME", "where .cache/moetune/ is when XDG_CACHE_HOME is unset"},
    VariableInfo{Variable::kNoColor, "NO_COLOR", "set to anything: no colour on a terminal"},
    VariableInfo{Variable::kWorker, "MOETUNE_WORKER",
                 "the helper program in which candidates run, instead of the one beside moetune"},
    VariableInfo{Variable::kPython, "MOETUNE_PYTHON",
                 "the Python that runs hosts of kernels, instead of the one beside moetune or the "
                 "first python3 of PATH"},
    VariableInfo{Variable::kCudaPath, "MOETUNE_CUDA_PATH",
                 "folders, separated by ':', in which NVIDIA's libraries are looked for first"},
    VariableInfo{Variable::kJitCacheBytes, "MOETUNE_JIT_CACHE_BYTES",
                 "largest size of the cache of compiled GPU kernels (default 1 GiB)"},
    VariableInfo{Variable::kCudaHome, "CUDA_HOME",
                 "a CUDA toolkit, in which NVIDIA's libraries are looked for"},
    VariableInfo{Variable::kPath, "PATH",
                 "leads to the Python whose packages may hold NVIDIA's libraries"},
    VariableInfo{Variable::kPythonPath, "PYTHONPATH",
                 "folders of Python packages that may hold NVIDIA's libraries"},
    VariableInfo{Variable::kVirtualEnv, "VIRTUAL_ENV",
                 "a Python environment that may hold NVIDIA's libraries"},
    VariableInfo{Variable::kCondaPrefix, "CONDA_PREFIX",
                 "a conda environment that may hold NVIDIA's libraries"},
};

constexpr bool in_enumeration_order() {
  for (size_t i = 0; i < kVariables.size(); ++i) {
    if (kVariables[i].variable != static_cast<Variable>(i)) return false;
  }
  return true;
}
static_assert(in_enumeration_order(), "environment() finds a variable by its position");

}  // namespace

std::span<const VariableInfo> environment_variables() { return kVariables; }

std::optional<std::string> environment(Variable variable) {
  const char* value = std::getenv(kVariables[static_cast<size_t>(variable)].name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

bool environment_switch(Variable variable) {
  const std::optional<std::string> value = environment(variable);
  return value && *value != "0" && *value != "false" && *value != "no" && *value != "off";
}

std::optional<std::string> cache_folder() {
  if (auto cache = environment(Variable::kXdgCacheHome); cache && cache->front() == '/') {
    return *cache + "/moetune";
  }
  if (auto home = environment(Variable::kHome); home && home->front() == '/') {
    return *home + "/.cache/moetune";
  }
  return std::nullopt;
}

}  // namespace moetune

// NVRTC, the run-time compiler, opened at run time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/planner.h"
#include "cuda/shared_library.h"
#include "moetune/result.h"

namespace moetune::cuda {

using nvrtcResult = int;
using nvrtcProgram = struct _nvrtcProgram*;

// X(name, parameter types...): what is used of NVRTC, under NVIDIA's names. Source: the NVRTC
// documentation, 12.0 to 13.0.
#define MOETUNE_NVRTC_FUNCTIONS(X)                                                        \
  X(nvrtcVersion, int*, int*)                                                             \
  X(nvrtcGetNumSupportedArchs, int*)                                                      \
  X(nvrtcGetSupportedArchs, int*)                                                         \
  X(nvrtcCreateProgram, nvrtcProgram*, const char*, const char*, int, const char* const*, \
    const char* const*)                                                                   \
  X(nvrtcDestroyProgram, nvrtcProgram*)                                                   \
  X(nvrtcAddNameExpression, nvrtcProgram, const char*)                                    \
  X(nvrtcCompileProgram, nvrtcProgram, int, const char* const*)                           \
  X(nvrtcGetProgramLogSize, nvrtcProgram, size_t*)                                        \
  X(nvrtcGetProgramLog, nvrtcProgram, char*)                                              \
  X(nvrtcGetLoweredName, nvrtcProgram, const char*, const char**)                         \
  X(nvrtcGetCUBINSize, nvrtcProgram, size_t*)                                             \
  X(nvrtcGetCUBIN, nvrtcProgram, char*)

struct Nvrtc {
#define MOETUNE_DECLARE(name, ...) nvrtcResult (*name)(__VA_ARGS__) = nullptr;
  MOETUNE_NVRTC_FUNCTIONS(MOETUNE_DECLARE)
#undef MOETUNE_DECLARE
  const char* (*nvrtcGetErrorString)(nvrtcResult) = nullptr;

  std::string path;  ///< Of the library's file.
  int major = 0;
  int minor = 0;
  std::vector<int> architectures;  ///< {75, 80, ..., 120}: what it can compile for.

  bool supports(const Architecture& arch) const;
  bool has_precompiled_headers() const { return major > 12 || (major == 12 && minor >= 8); }
  std::string version_text() const;  ///< "13.0"
};

/// The functions of one library. kUnsupported where it is too old or does not answer.
Result<Nvrtc> bind_nvrtc(const SharedLibrary& library);

/// The newest NVRTC of this machine whose machine code the driver takes: its major version is not
/// above the driver's. `driver_major` 0: there is no driver, any will do. kUnsupported with what to
/// install as the hint.
Result<Nvrtc> find_nvrtc(int driver_major);

/// find_nvrtc() for this machine's driver, once per process. Thread-safe; valid for ever.
Result<const Nvrtc*> load_nvrtc();

}  // namespace moetune::cuda

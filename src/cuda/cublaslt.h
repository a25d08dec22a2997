// cuBLASLt, the vendor's matrix library, opened at run time. Used to measure what a device can do,
// never to run the operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/driver.h"
#include "moetune/result.h"

namespace moetune::cuda {

using cublasStatus = int;
using cublasLtHandle = struct cublasLtContext*;
using cublasLtMatmulDesc = struct cublasLtMatmulDescOpaque*;
using cublasLtMatrixLayout = struct cublasLtMatrixLayoutOpaque*;
using cublasLtMatmulPreference = struct cublasLtMatmulPreferenceOpaque*;

struct cublasLtMatmulAlgo {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult {
  cublasLtMatmulAlgo algorithm;
  size_t workspace_bytes;
  cublasStatus state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(cublasLtMatmulHeuristicResult) == 96);

// Values of its enumerations.
inline constexpr int kCudaR32F = 0;
inline constexpr int kCudaR16Bf = 14;
inline constexpr int kCublasCompute32F = 68;
inline constexpr int kMatmulTransA = 3;
inline constexpr int kMatmulPreferenceWorkspace = 1;
inline constexpr int kCublasTranspose = 1;

// X(name, parameter types...): what is used of cuBLASLt. Source: the cuBLAS documentation, 12.0
// to 13.0.
#define MOETUNE_CUBLASLT_FUNCTIONS(X)                                                            \
  X(cublasLtCreate, cublasLtHandle*)                                                             \
  X(cublasLtDestroy, cublasLtHandle)                                                             \
  X(cublasLtMatmulDescCreate, cublasLtMatmulDesc*, int, int)                                     \
  X(cublasLtMatmulDescDestroy, cublasLtMatmulDesc)                                               \
  X(cublasLtMatmulDescSetAttribute, cublasLtMatmulDesc, int, const void*, size_t)                \
  X(cublasLtMatrixLayoutCreate, cublasLtMatrixLayout*, int, uint64_t, uint64_t, int64_t)         \
  X(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout)                                           \
  X(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreference*)                                   \
  X(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference)                                   \
  X(cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreference, int, const void*, size_t)    \
  X(cublasLtMatmulAlgoGetHeuristic, cublasLtHandle, cublasLtMatmulDesc, cublasLtMatrixLayout,    \
    cublasLtMatrixLayout, cublasLtMatrixLayout, cublasLtMatrixLayout, cublasLtMatmulPreference,  \
    int, cublasLtMatmulHeuristicResult*, int*)                                                   \
  X(cublasLtMatmul, cublasLtHandle, cublasLtMatmulDesc, const void*, const void*,                \
    cublasLtMatrixLayout, const void*, cublasLtMatrixLayout, const void*, const void*,           \
    cublasLtMatrixLayout, void*, cublasLtMatrixLayout, const cublasLtMatmulAlgo*, void*, size_t, \
    CUstream)

struct CublasLt {
#define MOETUNE_DECLARE(name, ...) cublasStatus (*name)(__VA_ARGS__) = nullptr;
  MOETUNE_CUBLASLT_FUNCTIONS(MOETUNE_DECLARE)
#undef MOETUNE_DECLARE
  size_t (*cublasLtGetVersion)() = nullptr;

  std::string version_text() const;  ///< "13.0.2"
};

/// The newest one of a major version that the driver takes, opened once per process. kUnsupported,
/// with what to install as the hint. Thread-safe; valid for ever.
Result<const CublasLt*> load_cublaslt();

}  // namespace moetune::cuda

// The CUDA driver, opened at run time: a program linked with this runs with or without one.
//
// The types below restate the driver's binary interface, as far as it is used here, under NVIDIA's
// own names, so that neither a toolkit nor a GPU is needed to build. Source: the CUDA Driver API
// reference, versions 12.0 to 13.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "moetune/result.h"

namespace moetune::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;  // NOLINT: the width the driver's interface states
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUgraphNode = struct CUgraphNode_st*;

/// One attribute of a launch: an id and 64 bytes that hold its value.
struct CUlaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int flag;
    struct {
      unsigned x, y, z;
    } cluster;
  } value;
};
static_assert(sizeof(CUlaunchAttribute) == 72);

struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(CUlaunchConfig) == 56);

// Results that are told apart here; all others are passed on in the driver's words.
inline constexpr CUresult kCudaSuccess = 0;
inline constexpr CUresult kCudaOutOfMemory = 2;
inline constexpr CUresult kCudaStubLibrary = 34;
inline constexpr CUresult kCudaNoDevice = 100;
inline constexpr CUresult kCudaNoBinaryForGpu = 209;
inline constexpr CUresult kCudaIllegalAddress = 700;

// Attributes of devices, functions and launches.
inline constexpr int kDeviceMultiprocessors = 16;
inline constexpr int kDeviceMemoryClockKhz = 36;
inline constexpr int kDeviceMemoryBusBits = 37;
inline constexpr int kDeviceL2Bytes = 38;
inline constexpr int kDeviceThreadsPerMultiprocessor = 39;
inline constexpr int kDeviceComputeMajor = 75;
inline constexpr int kDeviceComputeMinor = 76;
inline constexpr int kDeviceSharedPerMultiprocessor = 81;
inline constexpr int kDeviceRegistersPerMultiprocessor = 82;
inline constexpr int kDeviceSharedPerBlockOptin = 97;
inline constexpr int kDeviceBlocksPerMultiprocessor = 106;
inline constexpr int kDeviceReservedSharedPerBlock = 111;
inline constexpr int kFunctionMaxDynamicSharedBytes = 8;
inline constexpr int kFunctionSharedCarveout = 9;
inline constexpr int kLaunchCooperative = 2;
inline constexpr int kLaunchClusterDimension = 4;
inline constexpr int kLaunchProgrammaticSerialization = 6;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr unsigned kCaptureDependenciesSet = 1;
inline constexpr unsigned kHostMemoryMapped = 2;

// X(name, exported symbol, parameter types...)
// Where the driver exports several generations of a function, the symbol named is the one with
// these parameters.
#define MOETUNE_CUDA_DRIVER_FUNCTIONS(X)                                                           \
  X(cuInit, "cuInit", unsigned)                                                                    \
  X(cuDriverGetVersion, "cuDriverGetVersion", int*)                                                \
  X(cuGetErrorName, "cuGetErrorName", CUresult, const char**)                                      \
  X(cuGetErrorString, "cuGetErrorString", CUresult, const char**)                                  \
  X(cuDeviceGetCount, "cuDeviceGetCount", int*)                                                    \
  X(cuDeviceGet, "cuDeviceGet", CUdevice*, int)                                                    \
  X(cuDeviceGetName, "cuDeviceGetName", char*, int, CUdevice)                                      \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", int*, int, CUdevice)                             \
  X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", char*, int, CUdevice)                              \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", size_t*, CUdevice)                                    \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", CUcontext*, CUdevice)                    \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", CUdevice)                           \
  X(cuCtxGetCurrent, "cuCtxGetCurrent", CUcontext*)                                                \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", CUcontext)                                                 \
  X(cuMemGetInfo, "cuMemGetInfo_v2", size_t*, size_t*)                                             \
  X(cuMemAlloc, "cuMemAlloc_v2", CUdeviceptr*, size_t)                                             \
  X(cuMemFree, "cuMemFree_v2", CUdeviceptr)                                                        \
  X(cuMemHostAlloc, "cuMemHostAlloc", void**, size_t, unsigned)                                    \
  X(cuMemFreeHost, "cuMemFreeHost", void*)                                                         \
  X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", CUdeviceptr*, void*, unsigned)      \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", CUdeviceptr, const void*, size_t, CUstream)         \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", void*, CUdeviceptr, size_t, CUstream)               \
  X(cuMemsetD8Async, "cuMemsetD8Async", CUdeviceptr, unsigned char, size_t, CUstream)              \
  X(cuStreamCreate, "cuStreamCreate", CUstream*, unsigned)                                         \
  X(cuStreamDestroy, "cuStreamDestroy_v2", CUstream)                                               \
  X(cuStreamSynchronize, "cuStreamSynchronize", CUstream)                                          \
  X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", CUstream, int)                                \
  X(cuStreamEndCapture, "cuStreamEndCapture", CUstream, CUgraph*)                                  \
  X(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2", CUstream, int*, uint64_t*, CUgraph*,      \
    const CUgraphNode**, size_t*)                                                                  \
  X(cuStreamUpdateCaptureDependencies, "cuStreamUpdateCaptureDependencies", CUstream,              \
    CUgraphNode*, size_t, unsigned)                                                                \
  X(cuStreamWaitValue32, "cuStreamWaitValue32_v2", CUstream, CUdeviceptr, uint32_t, unsigned)      \
  X(cuEventCreate, "cuEventCreate", CUevent*, unsigned)                                            \
  X(cuEventDestroy, "cuEventDestroy_v2", CUevent)                                                  \
  X(cuEventRecord, "cuEventRecord", CUevent, CUstream)                                             \
  X(cuEventElapsedTime, "cuEventElapsedTime", float*, CUevent, CUevent)                            \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", CUgraphExec*, CUgraph, unsigned long long)  \
  X(cuGraphLaunch, "cuGraphLaunch", CUgraphExec, CUstream)                                         \
  X(cuGraphUpload, "cuGraphUpload", CUgraphExec, CUstream)                                         \
  X(cuGraphAddEmptyNode, "cuGraphAddEmptyNode", CUgraphNode*, CUgraph, const CUgraphNode*, size_t) \
  X(cuGraphExecDestroy, "cuGraphExecDestroy", CUgraphExec)                                         \
  X(cuGraphDestroy, "cuGraphDestroy", CUgraph)                                                     \
  X(cuModuleLoadData, "cuModuleLoadData", CUmodule*, const void*)                                  \
  X(cuModuleUnload, "cuModuleUnload", CUmodule)                                                    \
  X(cuModuleGetFunction, "cuModuleGetFunction", CUfunction*, CUmodule, const char*)                \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", CUfunction, int, int)                                \
  X(cuOccupancyMaxActiveBlocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor", int*, CUfunction,   \
    int, size_t)                                                                                   \
  X(cuLaunchKernelEx, "cuLaunchKernelEx", const CUlaunchConfig*, CUfunction, void**, void**)

/// The driver's functions, under NVIDIA's names; see the CUDA Driver API reference. Thread-safe.
struct Driver {
#define MOETUNE_DECLARE(name, symbol, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  MOETUNE_CUDA_DRIVER_FUNCTIONS(MOETUNE_DECLARE)
#undef MOETUNE_DECLARE

  int version = 0;  ///< The newest CUDA this driver serves: 12080 for 12.8.

  int cuda_major() const { return version / 1000; }
};

/// The oldest driver that has every function above: CUDA 12.0 (driver 525).
inline constexpr int kOldestDriverVersion = 12000;

/// The driver, opened and initialised once per process. kUnsupported, with what to install as the
/// hint, where there is no driver, it is too old, it is a toolkit's stub, or it finds no GPU
/// (MOETUNE_CUDA_PATH is searched first). Thread-safe; the pointer is valid for ever.
Result<const Driver*> load_driver();

/// What came back from the driver as a Status. `doing` completes "while ...": "replaying a graph".
/// kOutOfMemory for memory; otherwise kRun. Where the error is sticky the message says that this
/// process can no longer use the device.
Status to_status(const Driver& driver, CUresult result, std::string_view doing);

/// After such an error every later call in the same context fails: only a new process can use the
/// device again.
bool is_sticky(CUresult result);

#define MOETUNE_CUDA_CHECK(driver, call, doing) \
  MOETUNE_RETURN_IF_ERROR(::moetune::cuda::to_status((driver), (driver).call, (doing)))

}  // namespace moetune::cuda

// A driver that records what it is asked and answers as a test wants: the GPU's side of Device
// without a GPU.
//
// Handles are numbers; every one handed out must come back. A stream runs what is queued when it is
// synchronised, but nothing before a closed gate has opened. A replayed graph takes `graph_ms`.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace moetune::cuda::fake {

struct Gpu {
  std::vector<std::string>
      log;  ///< What was queued or captured, in order: "event", "graph", "kernel", ...
  std::set<uint64_t> handles;  ///< Alive.
  uint64_t next_handle = 1;
  std::map<std::string, CUresult> fails;  ///< Function -> the result it gives from now on.
  double clock_ms = 0;                    ///< The device's time.
  double graph_ms = 1;
  std::map<CUevent, double> event_ms;
  bool capturing = false;
  int captured_calls = 0;
  int empty_nodes = 0;
  uint32_t* gate = nullptr;  ///< The host memory a stream waits on.
  uint32_t gate_ticket = 0;
  bool waited_behind_gate = true;  ///< Every replay was queued while its gate was closed.
  int64_t launches = 0;
  int contexts_made = 0;
  CUcontext context = nullptr;
  CUcontext current = nullptr;  ///< Of the one thread that there is.
  size_t free_bytes = 1 << 20;
};

inline Gpu& gpu() {
  static Gpu state;
  return state;
}

inline CUresult result_of(const char* function) {
  const auto found = gpu().fails.find(function);
  return found == gpu().fails.end() ? kCudaSuccess : found->second;
}

template <typename Handle>
CUresult give(const char* function, Handle* out) {
  if (const CUresult failure = result_of(function); failure != kCudaSuccess) return failure;
  const uint64_t handle = gpu().next_handle++;
  gpu().handles.insert(handle);
  *out = (Handle)handle;  // NOLINT: a pointer for most handles, a number for memory
  return kCudaSuccess;
}

template <typename Handle>
CUresult take(Handle handle) {
  return gpu().handles.erase((uint64_t)handle) == 1 ? kCudaSuccess : 400;  // NOLINT: as above
}

/// What a call under test "launches": one entry in the log, while capturing or not.
inline void launch(const std::string& name) {
  gpu().log.push_back(name);
  if (gpu().capturing) ++gpu().captured_calls;
}

inline void add_device_functions(Driver& d) {
  d.version = 13000;
  d.cuInit = [](unsigned) { return 0; };
  d.cuGetErrorName = [](CUresult, const char** name) { return *name = "CUDA_ERROR_FAKE", 0; };
  d.cuGetErrorString = [](CUresult, const char** text) { return *text = "a fake failure", 0; };
  d.cuDeviceGetCount = [](int* count) { return *count = 1, 0; };
  d.cuDeviceGet = [](CUdevice* device, int) { return *device = 0, 0; };
  d.cuDeviceGetName = [](char* text, int, CUdevice) { return std::strcpy(text, "Fake GPU"), 0; };
  d.cuDeviceGetPCIBusId = [](char* text, int, CUdevice) { return std::strcpy(text, "none"), 0; };
  d.cuDeviceGetAttribute = [](int* value, int attribute, CUdevice) {
    const std::map<int, int> values = {{kDeviceComputeMajor, 9},
                                       {kDeviceComputeMinor, 0},
                                       {kDeviceMultiprocessors, 132},
                                       {kDeviceMemoryClockKhz, 3'201'000},
                                       {kDeviceMemoryBusBits, 6144},
                                       {kDeviceL2Bytes, 60 << 20},
                                       {kDeviceSharedPerMultiprocessor, 228 << 10},
                                       {kDeviceSharedPerBlockOptin, 227 << 10},
                                       {kDeviceReservedSharedPerBlock, 1 << 10},
                                       {kDeviceRegistersPerMultiprocessor, 65536},
                                       {kDeviceBlocksPerMultiprocessor, 32},
                                       {kDeviceThreadsPerMultiprocessor, 2048}};
    const auto found = values.find(attribute);
    *value = found == values.end() ? 0 : found->second;
    return found == values.end() ? 1 : 0;
  };
  d.cuDeviceTotalMem = [](size_t* bytes, CUdevice) { return *bytes = 2 << 20, 0; };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    ++gpu().contexts_made;
    const CUresult result = give("cuDevicePrimaryCtxRetain", context);
    if (result == kCudaSuccess) gpu().context = *context;
    return result;
  };
  d.cuDevicePrimaryCtxRelease = [](CUdevice) { return take(gpu().context); };
  d.cuCtxGetCurrent = [](CUcontext* context) { return *context = gpu().current, 0; };
  d.cuCtxSetCurrent = [](CUcontext context) { return gpu().current = context, 0; };
}

inline void add_memory_functions(Driver& d) {
  d.cuMemGetInfo = [](size_t* free, size_t* total) {
    return *free = gpu().free_bytes, *total = 2 << 20, 0;
  };
  d.cuMemAlloc = [](CUdeviceptr* address, size_t bytes) {
    return bytes > gpu().free_bytes ? kCudaOutOfMemory : give("cuMemAlloc", address);
  };
  d.cuMemFree = [](CUdeviceptr address) { return take(address); };
  d.cuMemHostAlloc = [](void** memory, size_t, unsigned) {
    gpu().gate = new uint32_t(0);
    return *memory = gpu().gate, 0;
  };
  d.cuMemFreeHost = [](void* memory) {
    delete static_cast<uint32_t*>(memory);
    return gpu().gate = nullptr, 0;
  };
  d.cuMemHostGetDevicePointer = [](CUdeviceptr* address, void* memory, unsigned) {
    return *address = reinterpret_cast<CUdeviceptr>(memory), 0;
  };
}

inline void add_stream_functions(Driver& d) {
  d.cuStreamCreate = [](CUstream* stream, unsigned) { return give("cuStreamCreate", stream); };
  d.cuStreamDestroy = [](CUstream stream) { return take(stream); };
  d.cuStreamSynchronize = [](CUstream) { return result_of("cuStreamSynchronize"); };
  d.cuStreamWaitValue32 = [](CUstream, CUdeviceptr, uint32_t ticket, unsigned) {
    gpu().gate_ticket = ticket;
    gpu().log.push_back("gate");
    return result_of("cuStreamWaitValue32");
  };
  d.cuEventCreate = [](CUevent* event, unsigned) { return give("cuEventCreate", event); };
  d.cuEventDestroy = [](CUevent event) { return take(event); };
  d.cuEventRecord = [](CUevent event, CUstream) {
    gpu().log.push_back("event");
    gpu().event_ms[event] = gpu().clock_ms;
    gpu().clock_ms += 0.5;  // What lies between two replays, and must not be counted.
    return 0;
  };
  d.cuEventElapsedTime = [](float* ms, CUevent from, CUevent to) {
    *ms = static_cast<float>(gpu().event_ms[to] - gpu().event_ms[from] - 0.5);
    return 0;
  };
}

inline void add_graph_functions(Driver& d) {
  d.cuStreamBeginCapture = [](CUstream, int) {
    return gpu().capturing = true, result_of("cuStreamBeginCapture");
  };
  d.cuStreamEndCapture = [](CUstream, CUgraph* graph) {
    gpu().capturing = false;
    return give("cuStreamEndCapture", graph);
  };
  d.cuStreamGetCaptureInfo = [](CUstream, int* status, uint64_t* id, CUgraph* graph,
                                const CUgraphNode** nodes, size_t* count) {
    static CUgraphNode node = nullptr;
    *status = 1, *id = 1, *graph = nullptr, *nodes = &node;
    return *count = gpu().captured_calls > 0 ? 1 : 0, 0;
  };
  d.cuGraphAddEmptyNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t) {
    ++gpu().empty_nodes;
    gpu().log.push_back("separator");
    return *node = nullptr, 0;
  };
  d.cuStreamUpdateCaptureDependencies = [](CUstream, CUgraphNode*, size_t, unsigned) { return 0; };
  d.cuGraphInstantiate = [](CUgraphExec* exec, CUgraph,
                            unsigned long long) {  // NOLINT: the driver's type
    return give("cuGraphInstantiate", exec);
  };
  d.cuGraphUpload = [](CUgraphExec, CUstream) { return 0; };
  d.cuGraphLaunch = [](CUgraphExec, CUstream) {
    gpu().log.push_back("graph");
    gpu().clock_ms += gpu().graph_ms;
    gpu().waited_behind_gate &= gpu().gate != nullptr && *gpu().gate != gpu().gate_ticket;
    return result_of("cuGraphLaunch");
  };
  d.cuGraphExecDestroy = [](CUgraphExec exec) { return take(exec); };
  d.cuGraphDestroy = [](CUgraph graph) { return take(graph); };
}

/// Modules load, kernels do nothing when launched, copies copy nothing.
inline void add_kernel_functions(Driver& d) {
  d.cuModuleLoadData = [](CUmodule* module, const void*) {
    return give("cuModuleLoadData", module);
  };
  d.cuModuleUnload = [](CUmodule module) { return take(module); };
  d.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
    return *function = nullptr, 0;
  };
  d.cuFuncSetAttribute = [](CUfunction, int, int) { return 0; };
  d.cuLaunchKernelEx = [](const CUlaunchConfig*, CUfunction, void**, void**) {
    return ++gpu().launches, 0;
  };
  d.cuMemcpyHtoDAsync = [](CUdeviceptr, const void*, size_t, CUstream) { return 0; };
  d.cuMemcpyDtoHAsync = [](void*, CUdeviceptr, size_t, CUstream) { return 0; };
  d.cuMemsetD8Async = [](CUdeviceptr, unsigned char, size_t, CUstream) { return 0; };
}

/// A fresh fake GPU behind a driver.
inline Driver make_driver() {
  gpu() = Gpu();
  Driver driver;
  add_device_functions(driver);
  add_memory_functions(driver);
  add_stream_functions(driver);
  add_graph_functions(driver);
  add_kernel_functions(driver);
  return driver;
}

}  // namespace moetune::cuda::fake

// NVML, the driver's management library, opened at run time: clocks, throttling, temperature,
// power, who else is there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moetune/measuring.h"
#include "moetune/result.h"

namespace moetune::cuda {

using nvmlReturn = int;
using nvmlDevice = struct nvmlDevice_st*;

struct NvmlMemory {
  unsigned long long total_bytes;  // NOLINT: the width the library's interface states
  unsigned long long free_bytes;   // NOLINT: as above
  unsigned long long used_bytes;   // NOLINT: as above
};

struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;  // NOLINT: the width the library's interface states
  unsigned gpu_instance;
  unsigned compute_instance;
};

// X(name, exported symbol, parameter types...): what is used of NVML. Source: the NVML API
// reference.
#define MOETUNE_NVML_FUNCTIONS(X)                                                                \
  X(nvmlInit, "nvmlInit_v2", void)                                                               \
  X(nvmlSystemGetDriverVersion, "nvmlSystemGetDriverVersion", char*, unsigned)                   \
  X(nvmlDeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2", const char*, nvmlDevice*) \
  X(nvmlDeviceGetClockInfo, "nvmlDeviceGetClockInfo", nvmlDevice, int, unsigned*)                \
  X(nvmlDeviceGetThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons", nvmlDevice,       \
    uint64_t*)                                                                                   \
  X(nvmlDeviceGetTemperature, "nvmlDeviceGetTemperature", nvmlDevice, int, unsigned*)            \
  X(nvmlDeviceGetPowerUsage, "nvmlDeviceGetPowerUsage", nvmlDevice, unsigned*)                   \
  X(nvmlDeviceGetMemory, "nvmlDeviceGetMemoryInfo", nvmlDevice, NvmlMemory*)                     \
  X(nvmlDeviceGetProcesses, "nvmlDeviceGetComputeRunningProcesses_v3", nvmlDevice, unsigned*,    \
    NvmlProcess*)

struct Nvml {
#define MOETUNE_DECLARE(name, symbol, ...) nvmlReturn (*name)(__VA_ARGS__) = nullptr;
  MOETUNE_NVML_FUNCTIONS(MOETUNE_DECLARE)
#undef MOETUNE_DECLARE

  /// "580.159.04"; empty where the library does not say.
  std::string driver_version() const;
  /// The device at a PCI address ("00000000:1B:00.0"); null where NVML does not see it.
  nvmlDevice find_device(const std::string& pci_bus_id) const;
  /// What can be read of the state; zero for what cannot. "Idle" does not count as a reason to
  /// throttle.
  DeviceState state(nvmlDevice device) const;
  /// Free memory of a device of which the driver says that it has `total_bytes`. Nothing where NVML
  /// does not say, and where it speaks of another device: of the whole of which the driver sees a
  /// slice (MIG).
  std::optional<size_t> free_bytes(nvmlDevice device, size_t total_bytes) const;
  /// Processes with a context on the device, this one included; 0: not known.
  int processes(nvmlDevice device) const;
};

/// Opened and initialised once per process. kUnsupported where it is not there. Thread-safe; valid
/// for ever.
Result<const Nvml*> load_nvml();

/// The bits of DeviceState::throttle_reasons in words: {"power cap", "thermal slowdown
/// (hardware)"}.
std::vector<std::string> throttle_reason_names(uint64_t reasons);

}  // namespace moetune::cuda

// What is known of the GPUs of this machine, without a context on any of them.
#pragma once

#include <string>

#include "cuda/driver.h"
#include "moetune/plan.h"

namespace moetune::cuda {

/// Identity: compute capability, multiprocessors, memory clock and bus width, L2 size. Toolchain:
/// driver, CUDA, NVRTC.
DeviceProperties describe_device(const Driver& driver, CUdevice device);

/// "00000000:1B:00.0": by this, and not by its number, NVML finds a device.
std::string pci_bus_id(const Driver& driver, CUdevice device);

}  // namespace moetune::cuda

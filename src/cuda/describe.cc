#include "cuda/describe.h"

#include <fmt/format.h>

#include <array>

#include "cuda/compile_pool.h"
#include "cuda/context.h"
#include "cuda/cublaslt.h"
#include "cuda/device.h"
#include "cuda/nvml.h"
#include "cuda/nvrtc.h"

namespace moetune::cuda {
namespace {

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

MissingPart missing(std::string part, std::string turns_off, const Error& error,
                    std::string how_to_get) {
  return {fmt::format("{} ({})", part, error.message), std::move(turns_off),
          error.hint.empty() ? std::move(how_to_get) : error.hint};
}

}  // namespace

DeviceProperties describe_device(const Driver& driver, CUdevice device) {
  const auto attribute = [&](int id) { return device_attribute(driver, device, id); };
  DeviceProperties properties;
  properties.kind = "cuda";
  properties.name = device_name(driver, device);
  const Architecture arch{attribute(kDeviceComputeMajor), attribute(kDeviceComputeMinor)};
  properties.identity = {
      {"sm", std::to_string(arch.sm())},
      {"multiprocessors", std::to_string(attribute(kDeviceMultiprocessors))},
      {"memory_clock_mhz", std::to_string(attribute(kDeviceMemoryClockKhz) / 1000)},
      {"memory_bus_bits", std::to_string(attribute(kDeviceMemoryBusBits))},
      {"l2_kib", std::to_string(attribute(kDeviceL2Bytes) / 1024)},
  };
  properties.toolchain["cuda_driver"] = cuda_version(driver.version);
  if (const auto nvml = load_nvml(); nvml.ok())
    properties.toolchain["driver"] = (*nvml)->driver_version();
  if (const auto nvrtc = load_nvrtc(); nvrtc.ok())
    properties.toolchain["nvrtc"] = (*nvrtc)->version_text();
  return properties;
}

std::string pci_bus_id(const Driver& driver, CUdevice device) {
  std::array<char, 32> text = {};
  driver.cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()) - 1, device);
  return text.data();
}

std::vector<DeviceProperties> list_cuda_devices() {
  std::vector<DeviceProperties> devices;
  const auto driver = load_driver();
  int count = 0;
  if (!driver.ok() || (*driver)->cuDeviceGetCount(&count) != kCudaSuccess) return devices;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    if ((*driver)->cuDeviceGet(&device, i) == kCudaSuccess)
      devices.push_back(describe_device(**driver, device));
  }
  return devices;
}

std::vector<MissingPart> missing_parts() {
  std::vector<MissingPart> parts;
  const auto driver = load_driver();
  if (!driver.ok())
    parts.push_back(missing("NVIDIA driver", "tuning and running on a GPU", driver.error(), ""));
  if (const auto nvrtc = load_nvrtc(); !nvrtc.ok()) {
    parts.push_back(missing("NVRTC", "compiling GPU kernels", nvrtc.error(), ""));
  }
  if (find_compile_worker().empty()) {
    parts.push_back(
        {"moetune-jit", "compiling several GPU kernels at once, and stopping a compiler that hangs",
         "install moetune-jit beside the program that uses moetune, or in ../libexec/moetune"});
  }
  if (!driver.ok())
    return parts;  // What follows comes with the driver or is of no use without one.
  if (const auto nvml = load_nvml(); !nvml.ok()) {
    parts.push_back(
        missing("NVML", "watching clocks, throttling and power while measuring", nvml.error(),
                "it comes with the driver; in a container, NVIDIA_DRIVER_CAPABILITIES must include "
                "utility"));
  }
  if (const auto cublaslt = load_cublaslt(); !cublaslt.ok()) {
    parts.push_back(missing("cuBLASLt", "measuring the matrix ceiling", cublaslt.error(), ""));
  }
  return parts;
}

}  // namespace moetune::cuda

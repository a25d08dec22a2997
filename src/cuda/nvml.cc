#include "cuda/nvml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cuda/shared_library.h"

namespace moetune::cuda {
namespace {

constexpr int kClockSm = 1;
constexpr int kTemperatureGpu = 0;
constexpr nvmlReturn kInsufficientSize = 7;
constexpr uint64_t kIdle = 1;
constexpr const char* kThrottleReasons = "nvmlDeviceGetCurrentClocksThrottleReasons";
constexpr const char* kEventReasons = "nvmlDeviceGetCurrentClocksEventReasons";

struct Reason {
  uint64_t bit;
  const char* name;
};
constexpr Reason kReasons[] = {
    {0x2, "application clocks setting"},
    {0x4, "power cap"},
    {0x8, "hardware slowdown"},
    {0x10, "sync boost with another GPU"},
    {0x20, "thermal slowdown (software)"},
    {0x40, "thermal slowdown (hardware)"},
    {0x80, "power brake"},
    {0x100, "display clock setting"},
    {0x200, "board limit"},
    {0x400, "reliability"},
};

Result<Nvml> open_nvml() {
  auto library = open_library("libnvidia-ml.so.1");
  if (!library.ok())
    return Error{ErrorCode::kUnsupported,
                 fmt::format("NVML is not here ({})", library.error().message)};
  Nvml nvml;
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* address = library->symbol(name);
    // Newer drivers call throttle reasons event reasons, and may drop the old name one day.
    if (address == nullptr && name == std::string_view(kThrottleReasons)) {
      address = library->symbol(kEventReasons);
    }
    if (address == nullptr && missing == nullptr) missing = name;
    return address;
  };
#define MOETUNE_BIND(name, exported, ...) \
  nvml.name = reinterpret_cast<decltype(nvml.name)>(find(exported));
  MOETUNE_NVML_FUNCTIONS(MOETUNE_BIND)
#undef MOETUNE_BIND
  if (missing)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} does not export {}", library->path(), missing)};
  if (const nvmlReturn result = nvml.nvmlInit(); result != 0) {
    return Error{ErrorCode::kUnsupported, fmt::format("NVML does not start (error {})", result)};
  }
  return nvml;
}

}  // namespace

std::string Nvml::driver_version() const {
  std::array<char, 96> text = {};
  return nvmlSystemGetDriverVersion(text.data(), text.size() - 1) == 0 ? text.data() : "";
}

nvmlDevice Nvml::find_device(const std::string& pci_bus_id) const {
  nvmlDevice device = nullptr;
  return nvmlDeviceGetHandleByPciBusId(pci_bus_id.c_str(), &device) == 0 ? device : nullptr;
}

DeviceState Nvml::state(nvmlDevice device) const {
  DeviceState state;
  unsigned value = 0;
  if (nvmlDeviceGetClockInfo(device, kClockSm, &value) == 0)
    state.clock_mhz = static_cast<int>(value);
  if (nvmlDeviceGetTemperature(device, kTemperatureGpu, &value) == 0)
    state.temperature_c = static_cast<int>(value);
  if (nvmlDeviceGetPowerUsage(device, &value) == 0) state.power_w = value / 1000.0;
  uint64_t reasons = 0;
  if (nvmlDeviceGetThrottleReasons(device, &reasons) == 0)
    state.throttle_reasons = reasons & ~kIdle;
  return state;
}

std::optional<size_t> Nvml::free_bytes(nvmlDevice device, size_t total_bytes) const {
  NvmlMemory memory = {};
  if (nvmlDeviceGetMemory(device, &memory) != 0) return std::nullopt;
  // The driver keeps some hundred MiB for itself, and counts them in one of the two totals only.
  const bool is_same = memory.total_bytes - memory.total_bytes / 8 <= total_bytes;
  if (!is_same) return std::nullopt;
  return std::min<size_t>(memory.free_bytes, total_bytes);
}

int Nvml::processes(nvmlDevice device) const {
  std::array<NvmlProcess, 64> found;
  unsigned count = found.size();
  const nvmlReturn result = nvmlDeviceGetProcesses(device, &count, found.data());
  return result == 0 || result == kInsufficientSize ? static_cast<int>(count) : 0;
}

Result<const Nvml*> load_nvml() {
  static const Result<Nvml> loaded = open_nvml();
  if (!loaded.ok()) return loaded.error();
  return &loaded.value();
}

std::vector<std::string> throttle_reason_names(uint64_t reasons) {
  std::vector<std::string> names;
  for (const Reason& reason : kReasons) {
    if (reasons & reason.bit) names.emplace_back(reason.name);
    reasons &= ~reason.bit;
  }
  if (reasons & ~kIdle) names.push_back(fmt::format("others ({:#x})", reasons & ~kIdle));
  return names;
}

}  // namespace moetune::cuda

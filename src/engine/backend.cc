#include "engine/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "cpu/ceilings.h"
#include "cpu/packed_runner.h"
#include "moetune/host_device.h"

namespace moetune {

namespace {

// What kernels are chosen by: the instruction set, how many threads run, and the caches they block for.
DeviceProperties cpu_properties(const cpu::Machine& machine) {
  DeviceProperties properties{"cpu", machine.topology.name, {}, {}};
  properties.identity = {{"isa", machine.kernels->name},
                         {"threads", fmt::format("{}", machine.threads->size())},
                         {"l2_kib", fmt::format("{}", machine.topology.l2_bytes >> 10)},
                         {"l3_kib", fmt::format("{}", machine.topology.l3_bytes >> 10)}};
  properties.toolchain = {{"compiler", fmt::format("gcc {}", __VERSION__)}};
  return properties;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(std::shared_ptr<cpu::Machine> machine)
      : machine_(std::move(machine)),
        device_(make_host_device(cpu_properties(*machine_))),
        pinned_(machine_->threads->cpus().front()) {}

  Device& device() override { return *device_; }

  Result<std::vector<std::unique_ptr<TunableRunner>>> make_runners(const FusedMoeSpec& spec) override {
    std::vector<std::unique_ptr<TunableRunner>> runners(1);
    MOETUNE_ASSIGN_OR_RETURN(runners[0], cpu::make_packed_runner(spec, machine_));
    return runners;
  }

  Result<Ceilings> measure_ceilings(size_t read_bytes) override {
    const size_t cache = device_->last_level_cache_bytes();
    Ceilings ceilings;
    ceilings.read_bytes = std::clamp<size_t>(read_bytes, 1u << 20, device_->free_memory_bytes() / 4);
    MOETUNE_ASSIGN_OR_RETURN(ceilings.read_bytes_per_s, cpu::read_bandwidth(ceilings.read_bytes, 3 * cache, *machine_->kernels,
                                                                            *machine_->threads));
    ceilings.operations_per_s = cpu::multiply_rate(*machine_->kernels, *machine_->threads);
    const std::string with = fmt::format("{} threads, {}", machine_->threads->size(), machine_->kernels->name);
    ceilings.read_name = fmt::format("read of {} MiB, {}", ceilings.read_bytes >> 20, with);
    ceilings.operations_name = fmt::format("{} loop, {}", machine_->kernels->values_per_item == 2 ? "bf16 dot-product" : "f32 FMA", with);
    return ceilings;
  }

  DevicePeak peak() const override { return {}; }

 private:
  std::shared_ptr<cpu::Machine> machine_;
  std::unique_ptr<Device> device_;
  cpu::ScopedAffinity pinned_;  // The calling thread is the pool's first.
};

}  // namespace

Result<std::unique_ptr<Backend>> open_backend(const std::string& device, const BackendOptions& options) {
  if (device == "auto" || device == "cpu") {
    MOETUNE_ASSIGN_OR_RETURN(auto machine, cpu::open_machine(options.threads));
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(std::move(machine)));
  }
  if (device.starts_with("cuda")) {
    return Error{ErrorCode::kUnsupported, fmt::format("device '{}': this build runs on the CPU only", device),
                 "use --device cpu"};
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is not a device", device), "auto, cpu and cuda:N are"};
}

}  // namespace moetune

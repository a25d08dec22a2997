#include "engine/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/status_macros.h"
#include "cpu/ceilings.h"
#include "cpu/packed_runner.h"
#include "cuda/ceilings.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/jit.h"
#include "cuda/mma/runner.h"
#include "moetune/host_device.h"

namespace moetune {

namespace {

// What kernels are chosen by: the instruction set, how many threads run, and the caches they block
// for.
DeviceProperties cpu_properties(const cpu::Machine& machine) {
  DeviceProperties properties{"cpu", machine.topology.name, {}, {}};
  properties.identity = {{"isa", machine.kernels->name},
                         {"threads", fmt::format("{}", machine.threads->size())},
                         {"l2_kib", fmt::format("{}", machine.topology.l2_bytes >> 10)},
                         {"l3_kib", fmt::format("{}", machine.topology.l3_bytes >> 10)}};
  properties.toolchain = {{"compiler", fmt::format("gcc {}", __VERSION__)}};
  return properties;
}

const char* name_of(cpu::Arithmetic arithmetic) {
  switch (arithmetic) {
    case cpu::Arithmetic::kF32: return "f32 FMA";
    case cpu::Arithmetic::kBf16Pairs: return "bf16 dot-product";
    case cpu::Arithmetic::kInt16Pairs: return "int16 multiply-add";
  }
  return "multiply";
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<cpu::Machine> machine, bool pin_caller)
      : machine_(std::move(machine)), device_(make_host_device(cpu_properties(*machine_))) {
    if (pin_caller) pinned_.emplace(machine_->threads->cpus().front());
  }

  Device& device() override { return *device_; }

  Result<std::vector<std::unique_ptr<TunableRunner>>> make_runners(
      const FusedMoeSpec& spec) override {
    std::vector<std::unique_ptr<TunableRunner>> runners(1);
    MOETUNE_ASSIGN_OR_RETURN(runners[0], cpu::make_packed_runner(spec, machine_));
    return runners;
  }

  Result<Ceilings> measure_ceilings(size_t read_bytes, WeightFormat weights) override {
    const size_t cache = device_->last_level_cache_bytes();
    Ceilings ceilings;
    ceilings.read_bytes =
        std::clamp<size_t>(read_bytes, 1u << 20, device_->free_memory_bytes() / 4);
    MOETUNE_ASSIGN_OR_RETURN(ceilings.read_bytes_per_s,
                             cpu::read_bandwidth(ceilings.read_bytes, 3 * cache, *machine_->kernels,
                                                 *machine_->threads));
    const cpu::FormatKernels& kernels = cpu::format_kernels(*machine_->kernels, weights);
    ceilings.operations_per_s = cpu::multiply_rate(kernels, *machine_->threads);
    const std::string with =
        fmt::format("{} threads, {}", machine_->threads->size(), machine_->kernels->name);
    ceilings.read_name = fmt::format("read of {} MiB, {}", ceilings.read_bytes >> 20, with);
    ceilings.operations_name = fmt::format("{} loop, {}", name_of(kernels.arithmetic), with);
    return ceilings;
  }

  DevicePeak peak() const override { return {}; }

  std::vector<int> processors() const override { return machine_->threads->cpus(); }

 private:
  std::shared_ptr<cpu::Machine> machine_;
  std::unique_ptr<Device> device_;
  std::optional<cpu::ScopedAffinity> pinned_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<cuda::CudaDevice> device) : device_(std::move(device)) {}

  Device& device() override { return *device_; }

  Result<std::vector<std::unique_ptr<TunableRunner>>> make_runners(
      const FusedMoeSpec& spec) override {
    std::vector<std::unique_ptr<TunableRunner>> runners(1);
    MOETUNE_ASSIGN_OR_RETURN(runners[0], cuda::make_mma_runner(spec, device_->context()));
    return runners;
  }

  Result<Ceilings> measure_ceilings(size_t read_bytes, WeightFormat /*weights*/) override {
    const size_t bytes = std::clamp<size_t>(read_bytes, 1u << 20, device_->free_memory_bytes() / 4);
    MOETUNE_ASSIGN_OR_RETURN(const auto read,
                             cuda::measure_read_ceiling(*device_, cuda::default_jit(), bytes));
    Ceilings ceilings{.read_bytes_per_s = read.bytes_per_second, .read_bytes = read.bytes};
    ceilings.read_name = fmt::format("read of {} MiB, {}", read.bytes >> 20, read.shape);
    // Without cuBLASLt there is no matrix ceiling, and reports say so.
    if (const auto matrix = cuda::measure_matrix_ceiling(*device_, cuda::default_jit());
        matrix.ok()) {
      ceilings.operations_per_s = matrix->flops_per_second;
      ceilings.operations_name = matrix->library + " bf16 8192^3";
    } else {
      ceilings.operations_name = "not measured: " + matrix.error().message;
    }
    return ceilings;
  }

  DevicePeak peak() const override { return {}; }

  std::shared_ptr<void> keep_selected() override {
    return std::make_shared<cuda::ContextScope>(
        cuda::ContextScope::keep(device_->context()->driver()));
  }

 private:
  std::unique_ptr<cuda::CudaDevice> device_;
};

// "cuda" and "cuda:N"; -1 for anything else.
int cuda_ordinal(const std::string& text) {
  if (text == "cuda") return 0;
  int ordinal = -1;
  const char* last = text.data() + text.size();
  if (!text.starts_with("cuda:")) return -1;
  const auto [end, error] = std::from_chars(text.data() + 5, last, ordinal);
  return error == std::errc() && end == last ? ordinal : -1;
}

Result<std::unique_ptr<Backend>> open_cuda(int ordinal) {
  MOETUNE_ASSIGN_OR_RETURN(auto device, cuda::make_cuda_device(ordinal));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(std::move(device)));
}

Result<std::unique_ptr<Backend>> open_cpu(const BackendOptions& options) {
  MOETUNE_ASSIGN_OR_RETURN(auto machine, cpu::open_machine(options.threads));
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBackend>(std::move(machine), options.pin_caller));
}

}  // namespace

Result<std::unique_ptr<Backend>> open_backend(const std::string& device,
                                              const BackendOptions& options) {
  if (device == "cpu") return open_cpu(options);
  if (device == "auto") return cuda::list_cuda_devices().empty() ? open_cpu(options) : open_cuda(0);
  if (const int ordinal = cuda_ordinal(device); ordinal >= 0) return open_cuda(ordinal);
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is not a device", device),
               "auto, cpu and cuda:N are"};
}

}  // namespace moetune

#include "cuda/device.h"

#include "base/status_macros.h"
#include "cuda/describe.h"
#include "cuda/graph.h"
#include "cuda/nvml.h"

namespace moetune::cuda {
namespace {

class GpuBuffer final : public DeviceBuffer {
 public:
  GpuBuffer(Memory memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  void* data() const override {
    return reinterpret_cast<void*>(memory_.get());
  }  // NOLINT: a device address
  size_t bytes() const override { return bytes_; }

 private:
  Memory memory_;
  size_t bytes_;
};

CUdeviceptr address(const void* device) { return reinterpret_cast<CUdeviceptr>(device); }
CUstream as_stream(void* stream) { return static_cast<CUstream>(stream); }

class Gpu final : public CudaDevice {
 public:
  Gpu(ContextPtr context, DeviceProperties properties, const Nvml* nvml)
      : context_(std::move(context)), properties_(std::move(properties)), nvml_(nvml) {
    if (nvml_ != nullptr)
      nvml_device_ = nvml_->find_device(pci_bus_id(context_->driver(), context_->device()));
  }

  const DeviceProperties& properties() const override { return properties_; }
  const ContextPtr& context() const override { return context_; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    MOETUNE_ASSIGN_OR_RETURN(Memory memory, allocate_memory(context_, bytes));
    return std::unique_ptr<DeviceBuffer>(std::make_unique<GpuBuffer>(std::move(memory), bytes));
  }

  Status upload(void* device, const void* host, size_t bytes) override {
    return run([&](void* stream) {
      return to_status(driver(),
                       driver().cuMemcpyHtoDAsync(address(device), host, bytes, as_stream(stream)),
                       "copying to the GPU");
    });
  }

  Status download(void* host, const void* device, size_t bytes) override {
    return run([&](void* stream) {
      return to_status(driver(),
                       driver().cuMemcpyDtoHAsync(host, address(device), bytes, as_stream(stream)),
                       "copying from the GPU");
    });
  }

  Status fill(void* device, uint8_t byte, size_t bytes) override {
    return run([&](void* stream) {
      return to_status(driver(),
                       driver().cuMemsetD8Async(address(device), byte, bytes, as_stream(stream)),
                       "filling GPU memory");
    });
  }

  Status run(const DeviceCall& call) override {
    MOETUNE_RETURN_IF_ERROR(prepare());
    // Waits after a failure too: part of the call may be under way.
    const Status called = call(stream_.get());
    const Status finished =
        to_status(driver(), driver().cuStreamSynchronize(stream_.get()), "running a call");
    return called.ok() ? finished : called;
  }

  Result<std::unique_ptr<TimedSequence>> record(std::vector<DeviceCall> calls) override {
    MOETUNE_RETURN_IF_ERROR(prepare());
    return make_timed_graph(context_, stream_.get(), std::move(calls));
  }

  DeviceState state() override { return nvml_device_ ? nvml_->state(nvml_device_) : DeviceState{}; }
  int processes() override { return nvml_device_ ? nvml_->processes(nvml_device_) : 0; }

  size_t last_level_cache_bytes() const override {
    return static_cast<size_t>(context_->attribute(kDeviceL2Bytes));
  }

  /// Where this process has a context the driver says what is left for it; before that NVML does,
  /// so that asking leaves the device alone.
  size_t free_memory_bytes() override {
    if (!context_->is_made() && nvml_device_) {
      const size_t all = device_memory_bytes(driver(), context_->device());
      if (const auto free = nvml_->free_bytes(nvml_device_, all)) return *free;
    }
    size_t free = 0;
    size_t total = 0;
    if (!context_->make_current().ok() || driver().cuMemGetInfo(&free, &total) != kCudaSuccess)
      return 0;
    return free;
  }

 private:
  const Driver& driver() const { return context_->driver(); }

  /// Makes the context current, and the stream in it that calls get.
  Status prepare() {
    MOETUNE_RETURN_IF_ERROR(context_->make_current());
    if (stream_) return {};
    MOETUNE_ASSIGN_OR_RETURN(stream_, make_stream(context_));
    return {};
  }

  ContextPtr context_;
  Stream stream_;
  DeviceProperties properties_;
  const Nvml* nvml_;
  nvmlDevice nvml_device_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<CudaDevice>> make_cuda_device(int ordinal) {
  MOETUNE_ASSIGN_OR_RETURN(const Driver* driver, load_driver());
  const auto nvml = load_nvml();
  return make_cuda_device(*driver, ordinal, nvml.ok() ? *nvml : nullptr);
}

Result<std::unique_ptr<CudaDevice>> make_cuda_device(const Driver& driver, int ordinal,
                                                     const Nvml* nvml) {
  MOETUNE_ASSIGN_OR_RETURN(ContextPtr context, Context::open(driver, ordinal));
  DeviceProperties properties = describe_device(driver, context->device());
  return std::unique_ptr<CudaDevice>(
      std::make_unique<Gpu>(std::move(context), std::move(properties), nvml));
}

}  // namespace moetune::cuda

#include "engine/limited_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"

namespace moetune {
namespace {

/// Gives its bytes back to the budget when it goes.
class CountedBuffer final : public DeviceBuffer {
 public:
  CountedBuffer(std::unique_ptr<DeviceBuffer> buffer, std::shared_ptr<uint64_t> used)
      : buffer_(std::move(buffer)), used_(std::move(used)) {
    *used_ += buffer_->bytes();
  }
  ~CountedBuffer() override { *used_ -= buffer_->bytes(); }
  void* data() const override { return buffer_->data(); }
  size_t bytes() const override { return buffer_->bytes(); }

 private:
  std::unique_ptr<DeviceBuffer> buffer_;
  std::shared_ptr<uint64_t> used_;
};

class LimitedDevice final : public Device {
 public:
  LimitedDevice(Device& device, uint64_t limit, uint64_t weights)
      : device_(device), limit_(limit), used_(std::make_shared<uint64_t>(weights)) {}

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    if (bytes > left()) {
      constexpr double kMebibyte = 1 << 20;
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("{:.1f} MiB more would exceed the limit of {:.1f} MiB (--memory)",
                               static_cast<double>(bytes) / kMebibyte,
                               static_cast<double>(limit_) / kMebibyte),
                   "raise --memory, or measure fewer tokens"};
    }
    MOETUNE_ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, device_.allocate(bytes));
    return std::unique_ptr<DeviceBuffer>(std::make_unique<CountedBuffer>(std::move(buffer), used_));
  }
  size_t free_memory_bytes() override {
    return std::min<uint64_t>(device_.free_memory_bytes(), left());
  }

  const DeviceProperties& properties() const override { return device_.properties(); }
  Status upload(void* device, const void* host, size_t bytes) override {
    return device_.upload(device, host, bytes);
  }
  Status download(void* host, const void* device, size_t bytes) override {
    return device_.download(host, device, bytes);
  }
  Status fill(void* device, uint8_t byte, size_t bytes) override {
    return device_.fill(device, byte, bytes);
  }
  Status run(const DeviceCall& call) override { return device_.run(call); }
  Result<std::unique_ptr<TimedSequence>> record(std::vector<DeviceCall> calls) override {
    return device_.record(std::move(calls));
  }
  DeviceState state() override { return device_.state(); }
  size_t last_level_cache_bytes() const override { return device_.last_level_cache_bytes(); }

 private:
  uint64_t left() const { return limit_ - std::min(limit_, *used_); }

  Device& device_;
  uint64_t limit_;
  std::shared_ptr<uint64_t> used_;
};

class LimitedBackend final : public Backend {
 public:
  LimitedBackend(std::unique_ptr<Backend> backend, uint64_t limit, uint64_t weights)
      : backend_(std::move(backend)), device_(backend_->device(), limit, weights) {}

  Device& device() override { return device_; }
  Result<std::vector<std::unique_ptr<TunableRunner>>> make_runners(
      const FusedMoeSpec& spec) override {
    return backend_->make_runners(spec);
  }
  Result<Ceilings> measure_ceilings(size_t read_bytes, WeightFormat weights) override {
    return backend_->measure_ceilings(std::min<size_t>(read_bytes, device_.free_memory_bytes()),
                                      weights);
  }
  DevicePeak peak() const override { return backend_->peak(); }
  std::vector<int> processors() const override { return backend_->processors(); }

 private:
  std::unique_ptr<Backend> backend_;
  LimitedDevice device_;
};

}  // namespace

std::unique_ptr<Backend> limit_memory(std::unique_ptr<Backend> backend, uint64_t limit_bytes,
                                      uint64_t weights_bytes) {
  return std::make_unique<LimitedBackend>(std::move(backend), limit_bytes, weights_bytes);
}

}  // namespace moetune

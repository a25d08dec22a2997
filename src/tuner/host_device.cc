#include "moetune/host_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <thread>

#include "base/host.h"
#include "base/status_macros.h"

namespace moetune {
namespace {

constexpr std::align_val_t kAlignment{256};

constexpr const char* machine() {
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "other";
#endif
}

class HostBuffer final : public DeviceBuffer {
 public:
  HostBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~HostBuffer() override { ::operator delete(data_, kAlignment); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

class HostSequence final : public TimedSequence {
 public:
  explicit HostSequence(std::vector<Device::DeviceCall> calls) : calls_(std::move(calls)) {}

  Result<double> sample_us(int repetitions) override {
    using Microseconds = std::chrono::duration<double, std::micro>;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) {
      for (const Device::DeviceCall& call : calls_) MOETUNE_RETURN_IF_ERROR(call(nullptr));
    }
    const double us = Microseconds(std::chrono::steady_clock::now() - start).count() /
                      (static_cast<double>(calls_.size()) * repetitions);
    if (us > 0) return us;
    return Error{ErrorCode::kMeasurement, fmt::format("a call took {} us", us),
                 "time more calls at once"};
  }

 private:
  std::vector<Device::DeviceCall> calls_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(DeviceProperties properties) : properties_(std::move(properties)) {}

  const DeviceProperties& properties() const override { return properties_; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    void* data = ::operator new(std::max<size_t>(bytes, 1), kAlignment, std::nothrow);
    if (data == nullptr) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("{} bytes of host memory are not to be had", bytes),
                   "free memory, or tune a smaller problem"};
    }
    return std::unique_ptr<DeviceBuffer>(std::make_unique<HostBuffer>(data, bytes));
  }

  Status upload(void* device, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
    return {};
  }
  Status download(void* host, const void* device, size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
    return {};
  }
  Status fill(void* device, uint8_t byte, size_t bytes) override {
    if (bytes > 0) std::memset(device, byte, bytes);
    return {};
  }

  Status run(const DeviceCall& call) override { return call(nullptr); }

  Result<std::unique_ptr<TimedSequence>> record(std::vector<DeviceCall> calls) override {
    if (calls.empty()) {
      return Error{ErrorCode::kInvalidArgument, "there is no call to be timed",
                   "record at least one"};
    }
    return std::unique_ptr<TimedSequence>(std::make_unique<HostSequence>(std::move(calls)));
  }

  DeviceState state() override { return {}; }
  size_t last_level_cache_bytes() const override { return host_last_level_cache_bytes(); }
  size_t free_memory_bytes() override {
    const size_t bytes = host_available_memory_bytes();
    return bytes == 0 ? std::numeric_limits<size_t>::max() : bytes;
  }

 private:
  DeviceProperties properties_;
};

}  // namespace

DeviceProperties host_properties() {
  return {"cpu",
          host_processor_name(),
          {{"cores", fmt::format("{}", std::max(1u, std::thread::hardware_concurrency()))},
           {"machine", machine()}},
          {}};
}

std::unique_ptr<Device> make_host_device(DeviceProperties properties) {
  return std::make_unique<HostDevice>(std::move(properties));
}

}  // namespace moetune

// A device on which time is what the operators say it is: each adds to a clock, and samples are
// differences of that clock. Results are the same on every machine, however busy.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "moetune/host_device.h"

namespace moetune {

class VirtualTimeDevice final : public Device {
 public:
  /// An operator took that long. Called by operators while they run.
  void spend_us(double us) { now_us_ += us; }
  double now_s() const { return now_us_ * 1e-6; }

  const DeviceProperties& properties() const override { return host_->properties(); }
  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    return host_->allocate(bytes);
  }
  Status upload(void* device, const void* host, size_t bytes) override {
    return host_->upload(device, host, bytes);
  }
  Status download(void* host, const void* device, size_t bytes) override {
    return host_->download(host, device, bytes);
  }
  Status fill(void* device, uint8_t byte, size_t bytes) override {
    return host_->fill(device, byte, bytes);
  }
  Status run(const DeviceCall& call) override { return host_->run(call); }
  Result<std::unique_ptr<TimedSequence>> record(std::vector<DeviceCall> calls) override {
    return std::unique_ptr<TimedSequence>(std::make_unique<Sequence>(*this, std::move(calls)));
  }
  DeviceState state() override { return {}; }
  size_t last_level_cache_bytes() const override { return size_t{1} << 20; }
  size_t free_memory_bytes() override { return size_t{1} << 30; }

 private:
  class Sequence final : public TimedSequence {
   public:
    Sequence(VirtualTimeDevice& device, std::vector<DeviceCall> calls)
        : device_(device), calls_(std::move(calls)) {}
    Result<double> sample_us(int repetitions) override {
      const double start = device_.now_us_;
      for (int i = 0; i < repetitions; ++i) {
        for (const DeviceCall& call : calls_) {
          if (Status status = call(nullptr); !status.ok()) return std::move(status).error();
        }
      }
      return (device_.now_us_ - start) / (static_cast<double>(calls_.size()) * repetitions);
    }

   private:
    VirtualTimeDevice& device_;
    std::vector<DeviceCall> calls_;
  };

  std::unique_ptr<Device> host_ =
      make_host_device({"cpu", "virtual", {{"cores", "1"}, {"isa", "virtual"}}, {}});
  double now_us_ = 0;
};

}  // namespace moetune

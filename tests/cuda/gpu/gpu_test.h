// What every test on a real GPU starts from: the device, its compiler, and a skip with the reason
// where there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/jit.h"
#include "cuda/module.h"

namespace moetune::cuda {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = make_cuda_device(0);
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    device_ = std::move(*device);
    JitOptions options;
    options.cache_folder.clear();
    jit_ = std::make_unique<Jit>(options);
  }

  /// The kernel of that name expression in a program for this device.
  Kernel compile(const std::string& source, const std::string& kernel, int shared_bytes = 0) {
    const auto program = jit_->compile({.label = "gpu test",
                                        .arch = device_->context()->architecture(),
                                        .source = source,
                                        .kernels = {kernel},
                                        .options = {}});
    if (!program.ok())
      throw std::runtime_error(program.error().message + "; " + program.error().hint);
    const auto module = Module::load(device_->context(), *program);
    if (!module.ok()) throw std::runtime_error(module.error().message);
    auto loaded = module->kernel(0, shared_bytes);
    if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
    return *loaded;
  }

  template <typename T>
  std::unique_ptr<DeviceBuffer> upload(const std::vector<T>& values) {
    auto buffer = device_->allocate(values.size() * sizeof(T));
    if (!buffer.ok()) throw std::runtime_error(buffer.error().message);
    const Status copied =
        device_->upload((*buffer)->data(), values.data(), values.size() * sizeof(T));
    if (!copied.ok()) throw std::runtime_error(copied.error().message);
    return std::move(*buffer);
  }

  template <typename T>
  std::vector<T> download(const DeviceBuffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    const Status copied = device_->download(values.data(), buffer.data(), buffer.bytes());
    if (!copied.ok()) throw std::runtime_error(copied.error().message);
    return values;
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Jit> jit_;
};

}  // namespace moetune::cuda

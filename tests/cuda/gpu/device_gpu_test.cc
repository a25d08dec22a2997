#include <gmock/gmock.h>

#include <cstdlib>
#include <numeric>

#include "cuda/driver.h"
#include "cuda/gpu/gpu_test.h"

namespace moetune::cuda {
namespace {

using ::testing::HasSubstr;

// `count` adds one to each number. `spin` keeps one block busy for some nanoseconds, having let its
// successor start at once where that was launched so. `fault` writes where there is no memory.
constexpr const char* kProgram = R"(
#include <cstdint>
__global__ void count(int* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
__global__ void spin(uint64_t nanoseconds) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  uint64_t start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}
__global__ void fault(int* x) { x[uint64_t{1} << 40] = 1; }
template <int bytes> __global__ void hold(int* x) {
  extern __shared__ int held[];
  held[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = held[threadIdx.x ^ 1];
}
)";

CUstream as_stream(void* stream) { return static_cast<CUstream>(stream); }

TEST_F(GpuTest, MemoryKeepsWhatIsPutThere) {
  std::vector<int> values(100'003);
  std::iota(values.begin(), values.end(), 7);
  const auto buffer = upload(values);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0u);
  EXPECT_EQ(download<int>(*buffer), values);
  ASSERT_TRUE(device_->fill(buffer->data(), 0xff, buffer->bytes()).ok());
  EXPECT_EQ(download<int>(*buffer), std::vector<int>(values.size(), -1));
}

TEST_F(GpuTest, AKernelRunsAndAGraphOfItDoesTheSame) {
  const Kernel count = compile(kProgram, "count");
  const std::vector<int> zeros(1000, 0);
  const auto buffer = upload(zeros);
  const LaunchShape shape{.grid_x = 4, .threads = 256};
  const Device::DeviceCall call = [&](void* stream) {
    return count(shape, as_stream(stream), buffer->data(), 1000);
  };
  ASSERT_TRUE(device_->run(call).ok());
  EXPECT_EQ(download<int>(*buffer), std::vector<int>(1000, 1));
  auto sequence = device_->record({call, call, call});
  ASSERT_TRUE(sequence.ok()) << sequence.error().message;
  EXPECT_EQ(download<int>(*buffer), std::vector<int>(1000, 1)) << "recording runs nothing";
  ASSERT_TRUE((*sequence)->sample_us(5).ok());
  EXPECT_EQ(download<int>(*buffer), std::vector<int>(1000, 16));
}

TEST_F(GpuTest, TimesAreThoseOfTheCalls) {
  const Kernel spin = compile(kProgram, "spin");
  for (const uint64_t us : {20, 100, 1000}) {
    const Device::DeviceCall call = [&](void* stream) {
      return spin({}, as_stream(stream), us * 1000);
    };
    for (const size_t calls : {1, 2, 8}) {
      auto sequence = device_->record(std::vector<Device::DeviceCall>(calls, call));
      ASSERT_TRUE(sequence.ok()) << sequence.error().message;
      (void)(*sequence)->sample_us(1);
      const auto sample = (*sequence)->sample_us(4);
      ASSERT_TRUE(sample.ok()) << sample.error().message;
      std::printf("%zu calls of %llu us: %.2f us each\n", calls,
                  static_cast<unsigned long long>(us), *sample);
      EXPECT_GT(*sample, static_cast<double>(us) - 1.5);
      EXPECT_LT(*sample, static_cast<double>(us) * 1.03 + 6);
    }
  }
}

TEST_F(GpuTest, CallsOfASequenceDoNotOverlapEvenIfLaunchedSo) {
  if (device_->context()->architecture().major < 9)
    GTEST_SKIP() << "programmatic launches exist from sm_90 on";
  const Kernel spin = compile(kProgram, "spin");
  const Device::DeviceCall call = [&](void* stream) {
    return spin({.programmatic = true}, as_stream(stream), uint64_t{50'000});
  };
  auto apart = device_->record(std::vector<Device::DeviceCall>(8, call));
  ASSERT_TRUE(apart.ok()) << apart.error().message;
  const auto us = (*apart)->sample_us(4);
  ASSERT_TRUE(us.ok());
  EXPECT_GT(*us, 48);

  // The check itself: the same launches within one call do overlap.
  auto together = device_->record({[&](void* stream) -> Status {
    for (int i = 0; i < 8; ++i) {
      if (Status launched = call(stream); !launched.ok()) return launched;
    }
    return {};
  }});
  ASSERT_TRUE(together.ok()) << together.error().message;
  const auto overlapped = (*together)->sample_us(4);
  ASSERT_TRUE(overlapped.ok());
  std::printf("8 launches of 50 us: %.1f us apart, %.1f us overlapping\n", *us * 8, *overlapped);
  EXPECT_LT(*overlapped, 8 * 48);
}

TEST_F(GpuTest, LargeGraphsDoNotFillTheQueueBehindTheGate) {
  const Kernel count = compile(kProgram, "count");
  const auto buffer = upload(std::vector<int>(32, 0));
  std::vector<Device::DeviceCall> calls(1000, [&](void* stream) {
    return count({.threads = 32}, as_stream(stream), buffer->data(), 32);
  });
  auto sequence = device_->record(std::move(calls));
  ASSERT_TRUE(sequence.ok()) << sequence.error().message;
  ASSERT_TRUE((*sequence)->sample_us(100).ok());
  EXPECT_EQ(download<int>(*buffer), std::vector<int>(32, 100'000));
}

TEST_F(GpuTest, StateIsRead) {
  const DeviceState state = device_->state();
  std::printf("%s: %d MHz, %d C, %.0f W, throttle %#llx, %d processes, %zu MiB free\n",
              device_->properties().name.c_str(), state.clock_mhz, state.temperature_c,
              state.power_w, static_cast<unsigned long long>(state.throttle_reasons),
              device_->processes(), device_->free_memory_bytes() >> 20);
  EXPECT_GT(state.clock_mhz, 0);
  EXPECT_GT(state.temperature_c, 0);
  EXPECT_GT(device_->free_memory_bytes(), 0u);
  for (const auto& [key, value] : device_->properties().identity) EXPECT_NE(value, "0") << key;
}

TEST_F(GpuTest, OutOfMemoryIsSurvived) {
  const auto buffer = device_->allocate(size_t{1} << 50);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(device_->allocate(1 << 20).ok());
}

TEST_F(GpuTest, ThePlannerAgreesWithTheDriver) {
  const ArchitectureLimits reported = device_->context()->limits();
  if (const ArchitectureLimits* published = find_limits(reported.sm)) {
    EXPECT_EQ(reported.shared_per_block, published->shared_per_block);
    EXPECT_EQ(reported.shared_per_multiprocessor, published->shared_per_multiprocessor);
    EXPECT_EQ(reported.shared_reserved, published->shared_reserved);
    EXPECT_EQ(reported.registers_per_multiprocessor, published->registers_per_multiprocessor);
    EXPECT_EQ(reported.warps_per_multiprocessor, published->warps_per_multiprocessor);
    EXPECT_EQ(reported.blocks_per_multiprocessor, published->blocks_per_multiprocessor);
  }
  const Kernel hold = compile(kProgram, "hold<0>", reported.shared_per_block);
  for (const int threads : {32, 96, 128, 256, 384, 1024}) {
    for (int shared = 0; shared <= reported.shared_per_block; shared += 7 * 1024 + 512) {
      const Fit fit = plan_kernel(
          reported,
          {.threads = threads, .registers = hold.resources().registers, .shared_bytes = shared});
      EXPECT_EQ(fit.blocks_per_multiprocessor,
                hold.blocks_per_multiprocessor(threads, static_cast<size_t>(shared)))
          << threads << " threads, " << shared << " bytes";
    }
  }
}

TEST_F(GpuTest, MoreSharedMemoryThanThereIsIsRefusedWithBothNumbers) {
  const int limit = device_->context()->limits().shared_per_block;
  EXPECT_NO_THROW(compile(kProgram, "hold<0>", limit));
  try {
    compile(kProgram, "hold<0>", limit + 1024);
    FAIL() << "was not refused";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(limit + 1024)));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(limit)));
  }
}

TEST_F(GpuTest, CodeForAnotherArchitectureIsRefused) {
  const Architecture here = device_->context()->architecture();
  const Architecture other = here.major == 8 ? Architecture{9, 0} : Architecture{8, 0};
  const auto program = jit_->compile({.label = "gpu test",
                                      .arch = other,
                                      .source = kProgram,
                                      .kernels = {"count"},
                                      .options = {}});
  ASSERT_TRUE(program.ok()) << program.error().message;
  const auto module = Module::load(device_->context(), *program);
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(module.error().message, HasSubstr(other.text()));
}

TEST_F(GpuTest, WorkThatCannotBeRecordedIsAnErrorAndHarmsNothing) {
  const Driver& driver = device_->context()->driver();
  const auto sequence = device_->record({[&](void* stream) {
    return to_status(driver, driver.cuStreamSynchronize(as_stream(stream)),
                     "waiting inside of a call");
  }});
  ASSERT_FALSE(sequence.ok());
  EXPECT_EQ(sequence.error().code, ErrorCode::kRun);
  EXPECT_TRUE(device_->run([](void*) { return Status(); }).ok());
}

using GpuDeathTest = GpuTest;

TEST_F(GpuDeathTest, AFaultIsReportedWhereItHappensAndEverAfter) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // In another process: the fault is the end of this one's GPU.
  const auto fault_and_check = [&] {
    const Kernel fault = compile(kProgram, "fault");
    const auto buffer = upload(std::vector<int>(1, 0));
    const Status first =
        device_->run([&](void* stream) { return fault({}, as_stream(stream), buffer->data()); });
    const Status later = device_->fill(buffer->data(), 0, 4);
    const bool right = !first.ok() && first.error().code == ErrorCode::kRun &&
                       first.error().message.find("context is lost") != std::string::npos &&
                       !later.ok() &&
                       later.error().message.find("context is lost") != std::string::npos;
    std::fprintf(stderr, "%s\n", first.ok() ? "no error" : first.error().message.c_str());
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(fault_and_check(), ::testing::ExitedWithCode(0), "ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace moetune::cuda

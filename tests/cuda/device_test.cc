#include "cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cuda/fake_driver.h"
#include "cuda/mma/runner.h"
#include "cuda/mma_cases.h"

namespace moetune::cuda {
namespace {

using ::testing::HasSubstr;

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_ = fake::make_driver();
    auto device = make_cuda_device(driver_, 0);
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
  }
  void TearDown() override {
    sequence_.reset();
    device_.reset();
    EXPECT_TRUE(fake::gpu().handles.empty())
        << fake::gpu().handles.size() << " handles were never given back";
    EXPECT_EQ(fake::gpu().gate, nullptr) << "host memory was never given back";
  }

  static Device::DeviceCall call(const std::string& name) {
    return [name](void*) {
      fake::launch(name);
      return Status();
    };
  }

  Status record(std::vector<Device::DeviceCall> calls) {
    auto sequence = device_->record(std::move(calls));
    if (!sequence.ok()) return sequence.error();
    sequence_ = std::move(*sequence);
    fake::gpu().log.clear();
    return {};
  }

  static long count(const std::string& what) {
    const auto& log = fake::gpu().log;
    return std::count(log.begin(), log.end(), what);
  }

  Driver driver_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<TimedSequence> sequence_;
};

TEST_F(DeviceTest, IsKnownByItsPropertiesAndNotByItsName) {
  const DeviceProperties& properties = device_->properties();
  EXPECT_EQ(properties.kind, "cuda");
  EXPECT_EQ(properties.name, "Fake GPU");
  EXPECT_EQ(properties.identity.at("sm"), "90");
  EXPECT_EQ(properties.identity.at("multiprocessors"), "132");
  EXPECT_EQ(properties.identity.at("memory_clock_mhz"), "3201");
  EXPECT_EQ(properties.identity.at("memory_bus_bits"), "6144");
  EXPECT_EQ(properties.identity.at("l2_kib"), "61440");
  EXPECT_EQ(properties.toolchain.at("cuda_driver"), "13.0");
  EXPECT_EQ(device_->last_level_cache_bytes(), size_t{60} << 20);
}

TEST_F(DeviceTest, AnOrdinalThatIsNotThereIsRefused) {
  for (const int ordinal : {-1, 1}) {
    const auto device = make_cuda_device(driver_, ordinal);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(DeviceTest, OutOfMemorySaysHowMuchWasAskedForAndIsFree) {
  fake::gpu().free_bytes = 1000;
  EXPECT_EQ(device_->free_memory_bytes(), 1000u);
  const auto buffer = device_->allocate(5000);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(buffer.error().message, HasSubstr("allocating 5000 bytes"));
  EXPECT_THAT(buffer.error().message, HasSubstr("1000 of"));
}

TEST_F(DeviceTest, ABufferOutlivesItsDevice) {
  auto buffer = device_->allocate(100);
  ASSERT_TRUE(buffer.ok());
  device_.reset();
  EXPECT_FALSE(fake::gpu().handles.empty());
}

TEST_F(DeviceTest, ASampleIsTheTimeOfOneCall) {
  ASSERT_TRUE(record({call("a"), call("b"), call("c"), call("d")}).ok());
  fake::gpu().graph_ms = 2;
  const auto us = sequence_->sample_us(3);
  ASSERT_TRUE(us.ok()) << us.error().message;
  EXPECT_NEAR(*us, 500, 1e-3) << "2 ms for 4 calls, and nothing of what lies between replays";
  EXPECT_EQ(count("graph"), 3);
  EXPECT_EQ(count("event"), 6);
}

TEST_F(DeviceTest, CallsAreRecordedInOrderWithNothingOverlapping) {
  auto sequence = device_->record({call("a"), call("b"), call("c")});
  ASSERT_TRUE(sequence.ok());
  EXPECT_THAT(fake::gpu().log, ::testing::ElementsAre("a", "separator", "b", "separator", "c"));
}

TEST_F(DeviceTest, EveryReplayIsQueuedBehindAClosedGateThatThenOpens) {
  ASSERT_TRUE(record({call("a")}).ok());
  ASSERT_TRUE(sequence_->sample_us(100).ok());
  EXPECT_EQ(count("graph"), 100);
  EXPECT_TRUE(fake::gpu().waited_behind_gate);
  EXPECT_EQ(*fake::gpu().gate, fake::gpu().gate_ticket);
  // A queue that is full makes the host wait for a stream that waits for the host.
  const auto& log = fake::gpu().log;
  long queued = 0;
  for (const std::string& entry : log) {
    queued = entry == "gate" ? 0 : queued + 1;
    EXPECT_LE(queued, 200);
  }
}

TEST_F(DeviceTest, TheGateOpensAlsoWhenQueuingFails) {
  ASSERT_TRUE(record({call("a")}).ok());
  fake::gpu().fails["cuGraphLaunch"] = 1;
  EXPECT_FALSE(sequence_->sample_us(1).ok());
  EXPECT_EQ(*fake::gpu().gate, fake::gpu().gate_ticket);
  fake::gpu().fails.clear();
  EXPECT_TRUE(sequence_->sample_us(1).ok());
}

TEST_F(DeviceTest, ATimeOfZeroIsAMeasurementError) {
  ASSERT_TRUE(record({call("a")}).ok());
  fake::gpu().graph_ms = 0;
  const auto us = sequence_->sample_us(1);
  ASSERT_FALSE(us.ok());
  EXPECT_EQ(us.error().code, ErrorCode::kMeasurement);
}

TEST_F(DeviceTest, ACallThatFailsWhileRecordingEndsTheCapture) {
  const Status status = record({call("a"), [](void*) -> Status {
                                  return Error{ErrorCode::kRun, "no such kernel"};
                                }});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "no such kernel");
  EXPECT_FALSE(fake::gpu().capturing);
  EXPECT_TRUE(record({call("a")}).ok()) << "the stream can be used again";
}

TEST_F(DeviceTest, ACallsOwnErrorComesBeforeTheDevices) {
  const Status own = device_->run([](void*) -> Status {
    return Error{ErrorCode::kRun, "own error"};
  });
  EXPECT_EQ(own.error().message, "own error");
}

TEST_F(DeviceTest, AFaultIsSaidToBeTheEndOfTheContext) {
  fake::gpu().fails["cuStreamSynchronize"] = kCudaIllegalAddress;
  const Status status = device_->run(call("a"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kRun);
  EXPECT_THAT(status.error().message, HasSubstr("context is lost"));
}

TEST_F(DeviceTest, NothingToTimeIsRefused) {
  const Status status = record({});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
}

/// An NVML that knows one device, of `total_bytes`.
Nvml fake_nvml() {
  Nvml nvml;
  nvml.nvmlDeviceGetHandleByPciBusId = [](const char*, nvmlDevice* device) {
    return *device = reinterpret_cast<nvmlDevice>(uintptr_t{1}), 0;
  };
  nvml.nvmlDeviceGetMemory = [](nvmlDevice, NvmlMemory* memory) {
    return *memory = {2 << 20, 1500 << 10, 548 << 10}, 0;
  };
  return nvml;
}

// A helper may crash on the device; the program that started it has nothing there to lose.
TEST(DeviceWithoutContext, KnowsAllThatATunerWithAHelperAsksFor) {
  const Driver driver = fake::make_driver();
  const Nvml nvml = fake_nvml();
  {
    const auto device = make_cuda_device(driver, 0, &nvml);
    ASSERT_TRUE(device.ok()) << device.error().message;
    EXPECT_EQ((*device)->properties().identity.at("sm"), "90");
    EXPECT_GT((*device)->last_level_cache_bytes(), 0u);
    EXPECT_EQ((*device)->free_memory_bytes(), size_t{1500} << 10);
    const auto runner =
        make_mma_runner(mma_spec(2048, 768, 128, 8, WeightFormat::kBf16), (*device)->context());
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    const Candidate candidate = (*runner)->default_candidate(64);
    EXPECT_GT((*runner)->workspace_bytes(candidate, 64), 0u);
    EXPECT_FALSE((*runner)->schemes().empty());
    EXPECT_EQ(fake::gpu().contexts_made, 0);

    EXPECT_TRUE((*device)->allocate(100).ok());
    EXPECT_TRUE((*device)->run([](void*) { return Status(); }).ok());
    EXPECT_EQ(fake::gpu().contexts_made, 1) << "the first thing that runs there makes it, once";
    EXPECT_EQ((*device)->free_memory_bytes(), size_t{1} << 20) << "the driver knows it better";
  }
  EXPECT_TRUE(fake::gpu().handles.empty());
}

TEST(DeviceWithoutContext, TakesFreeMemoryFromOneWhereNvmlDoesNotSayOrMeansAnotherDevice) {
  const Driver driver = fake::make_driver();
  Nvml silent = fake_nvml();
  silent.nvmlDeviceGetMemory = [](nvmlDevice, NvmlMemory*) { return 3; };
  Nvml whole = fake_nvml();  // Of a GPU of which this process sees a slice.
  whole.nvmlDeviceGetMemory = [](nvmlDevice, NvmlMemory* memory) {
    return *memory = {14 << 20, 13 << 20, 1 << 20}, 0;
  };
  for (const Nvml* nvml :
       {static_cast<const Nvml*>(nullptr), &std::as_const(silent), &std::as_const(whole)}) {
    fake::gpu().contexts_made = 0;
    const auto device = make_cuda_device(driver, 0, nvml);
    ASSERT_TRUE(device.ok()) << device.error().message;
    EXPECT_EQ((*device)->free_memory_bytes(), size_t{1} << 20);
    EXPECT_EQ(fake::gpu().contexts_made, 1);
  }
}

TEST(DeviceWithoutContext, ThatCannotBeMadeSaysSoWhereItIsNeededAndTriesAgain) {
  const Driver driver = fake::make_driver();
  const auto device = make_cuda_device(driver, 0);
  ASSERT_TRUE(device.ok());
  fake::gpu().fails["cuDevicePrimaryCtxRetain"] = kCudaOutOfMemory;
  const auto buffer = (*device)->allocate(100);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(buffer.error().message, HasSubstr("making a context"));
  fake::gpu().fails.clear();
  EXPECT_TRUE((*device)->allocate(100).ok());
}

// A program's own threads have chosen another GPU, or none.
TEST(DeviceContextScope, SelectsItsGpuAndPutsBackWhatTheThreadHad) {
  const Driver driver = fake::make_driver();
  const auto context = Context::open(driver, 0);
  ASSERT_TRUE(context.ok()) << context.error().message;
  int other = 0;
  for (CUcontext before : {CUcontext(nullptr), reinterpret_cast<CUcontext>(&other)}) {
    fake::gpu().current = before;
    {
      const auto scope = ContextScope::enter(**context);
      ASSERT_TRUE(scope.ok()) << scope.error().message;
      EXPECT_EQ(fake::gpu().current, fake::gpu().context);
      EXPECT_TRUE(ContextScope::enter(**context).ok());
      EXPECT_EQ(fake::gpu().current, fake::gpu().context) << "one within it";
    }
    EXPECT_EQ(fake::gpu().current, before);
    {
      const auto kept = ContextScope::keep(driver);
      EXPECT_TRUE((*context)->make_current().ok());
      EXPECT_EQ(fake::gpu().current, fake::gpu().context);
    }
    EXPECT_EQ(fake::gpu().current, before);
  }
}

TEST(Devices, AreListedWithoutEverFailing) {
  const auto devices = list_cuda_devices();
  const auto missing = missing_parts();
  const auto driver = load_driver();
  EXPECT_EQ(devices.empty(), !driver.ok());
  const bool named = std::any_of(missing.begin(), missing.end(), [](const MissingPart& part) {
    return part.part.starts_with("NVIDIA driver");
  });
  EXPECT_EQ(named, !driver.ok());
  for (const MissingPart& part : missing) {
    EXPECT_NE(part.part, "");
    EXPECT_NE(part.turns_off, "") << part.part;
    EXPECT_NE(part.how_to_get, "") << part.part;
  }
}

}  // namespace
}  // namespace moetune::cuda

#include "cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/driver_open.h"

namespace moetune::cuda {
namespace {

using ::testing::HasSubstr;

// A driver that starts as the test wants it to.
CUresult start_result = 0;
int devices = 1;

Driver scripted_driver() {
  Driver driver;
  driver.version = 13000;
  driver.cuInit = [](unsigned) { return start_result; };
  driver.cuDeviceGetCount = [](int* count) {
    *count = devices;
    return 0;
  };
  driver.cuGetErrorName = [](CUresult result, const char** name) {
    *name = result == kCudaIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_X";
    return 0;
  };
  driver.cuGetErrorString = [](CUresult, const char** text) {
    *text = "words of the driver";
    return 0;
  };
  return driver;
}

Status start(CUresult result, int device_count) {
  start_result = result;
  devices = device_count;
  return start_driver(scripted_driver());
}

TEST(Driver, StartsWhereThereIsAGpu) { EXPECT_TRUE(start(0, 2).ok()); }

TEST(Driver, SaysWhatIsWrongAndWhatToDo) {
  const std::tuple<CUresult, int, const char*, const char*> cases[] = {
      {kCudaNoDevice, 0, "finds no GPU", "CUDA_VISIBLE_DEVICES"},
      {0, 0, "finds no GPU", "nvidia-smi"},
      {kCudaStubLibrary, 0, "stub", "LD_LIBRARY_PATH"},
      {803, 0, "words of the driver", "restart"},
  };
  for (const auto& [result, count, message, hint] : cases) {
    const Status status = start(result, count);
    ASSERT_FALSE(status.ok()) << message;
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(status.error().message, HasSubstr(message));
    EXPECT_THAT(status.error().hint, HasSubstr(hint));
  }
}

TEST(Driver, AnOldOneIsRefusedWithBothVersions) {
  const auto library = SharedLibrary::open(MOETUNE_OLD_DRIVER);
  ASSERT_TRUE(library.ok()) << library.error().message;
  const auto driver = bind_driver(*library);
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(driver.error().message, HasSubstr("CUDA 11.8"));
  EXPECT_THAT(driver.error().message, HasSubstr("12.0"));
  EXPECT_THAT(driver.error().hint, HasSubstr("525"));
}

TEST(Driver, LoadingNeverCrashesAndAlwaysAnswersTheSame) {
  const auto first = load_driver();
  const auto second = load_driver();
  ASSERT_EQ(first.ok(), second.ok());
  if (first.ok()) {
    EXPECT_EQ(*first, *second);
  } else {
    EXPECT_EQ(first.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(first.error().hint, "");
  }
}

TEST(DriverErrors, ThatKillTheContextSaySo) {
  const Driver driver = scripted_driver();
  EXPECT_TRUE(to_status(driver, 0, "working").ok());
  const Status fault = to_status(driver, kCudaIllegalAddress, "running a call");
  ASSERT_FALSE(fault.ok());
  EXPECT_EQ(fault.error().code, ErrorCode::kRun);
  EXPECT_THAT(fault.error().message, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_THAT(fault.error().message, HasSubstr("while running a call"));
  EXPECT_THAT(fault.error().message, HasSubstr("context is lost"));
  EXPECT_THAT(to_status(driver, 1, "working").error().message,
              ::testing::Not(HasSubstr("context is lost")));
}

TEST(DriverErrors, OfMemoryAreTellable) {
  EXPECT_EQ(to_status(scripted_driver(), kCudaOutOfMemory, "allocating").error().code,
            ErrorCode::kOutOfMemory);
}

TEST(DriverErrors, StickyOnesAreThoseAfterWhichNothingWorks) {
  for (const CUresult result : {700, 702, 710, 715, 716, 717, 718, 719})
    EXPECT_TRUE(is_sticky(result)) << result;
  for (const CUresult result : {0, 1, 2, 100, 200, 209, 400, 600, 701, 801, 901})
    EXPECT_FALSE(is_sticky(result)) << result;
}

}  // namespace
}  // namespace moetune::cuda

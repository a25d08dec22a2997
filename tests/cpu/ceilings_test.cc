#include "cpu/ceilings.h"

#include <gtest/gtest.h>

#include "cpu/isa.h"

namespace moetune::cpu {
namespace {

TEST(Ceilings, ArePositiveAndEndInTime) {
  ThreadPool pool({-1, -1});
  for (const Isa isa : supported_isas()) {
    const Result<double> bytes_per_s =
        read_bandwidth(size_t{4} << 20, size_t{16} << 20, kernels(isa), pool, 0.02);
    ASSERT_TRUE(bytes_per_s.ok());
    EXPECT_GT(*bytes_per_s, 1e8) << to_string(isa);
    EXPECT_LT(*bytes_per_s, 1e13) << to_string(isa);
    for (const FormatKernels* format : {kernels(isa).bf16, kernels(isa).nvfp4}) {
      const double rate = multiply_rate(*format, pool, 0.02);
      EXPECT_GT(rate, 1e8) << to_string(isa);
      EXPECT_LT(rate, 1e14) << to_string(isa);
    }
  }
}

TEST(Ceilings, TakeSmallAndUnevenSizes) {
  ThreadPool pool({-1});
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{65537}})
    EXPECT_TRUE(read_bandwidth(bytes, 1 << 20, kernels(Isa::kPortable), pool, 0.0).ok()) << bytes;
}

TEST(Ceilings, MoreMemoryThanThereIsIsAnError) {
  ThreadPool pool({-1});
  const Result<double> result =
      read_bandwidth(size_t{1} << 20, size_t{1} << 60, kernels(Isa::kPortable), pool, 0.0);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace moetune::cpu

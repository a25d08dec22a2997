#include "cuda/ceilings.h"

#include "cuda/cublaslt.h"
#include "cuda/gpu/gpu_test.h"

namespace moetune::cuda {
namespace {

TEST_F(GpuTest, ReadingGetsFasterWithSizeAndNeverBeatsTheMemory) {
  const auto& identity = device_->properties().identity;
  // Two transfers a clock on each line.
  const double peak = 2e6 * std::stod(identity.at("memory_clock_mhz")) *
                      std::stod(identity.at("memory_bus_bits")) / 8;
  double before = 0;
  for (const double megabytes : {2.65, 21.2, 151.0, 604.0}) {
    const auto ceiling =
        measure_read_ceiling(*device_, *jit_, static_cast<size_t>(megabytes * 1e6));
    ASSERT_TRUE(ceiling.ok()) << ceiling.error().message;
    std::printf("read %8.2f MB: %8.2f us %6.3f TB/s  %s\n", megabytes, ceiling->us,
                ceiling->bytes_per_second / 1e12, ceiling->shape.c_str());
    EXPECT_LT(ceiling->bytes_per_second, peak);
    EXPECT_GT(ceiling->bytes_per_second, before);
    before = ceiling->bytes_per_second;
  }
  EXPECT_GT(before, 0.6 * peak);
}

TEST_F(GpuTest, TheMatrixCeilingIsMeasuredWhereTheLibraryIs) {
  if (const auto library = load_cublaslt(); !library.ok()) GTEST_SKIP() << library.error().message;
  const auto ceiling = measure_matrix_ceiling(*device_, *jit_);
  ASSERT_TRUE(ceiling.ok()) << ceiling.error().message;
  std::printf("bf16 8192^3: %.0f us, %.0f TFLOP/s, %s\n", ceiling->us,
              ceiling->flops_per_second / 1e12, ceiling->library.c_str());
  EXPECT_GT(ceiling->flops_per_second, 10e12);
}

}  // namespace
}  // namespace moetune::cuda

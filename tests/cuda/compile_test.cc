#include "cuda/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As NVRTC 13.0 reports two kernels, one of which calls a function that is not inlined.
constexpr const char* kLog = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5firstILi16EEvPf' for 'sm_90'
ptxas info    : Function properties for _Z6helperf
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for _Z5firstILi16EEvPf
    128 bytes stack frame, 64 bytes spill stores, 72 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 2048 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 253.699 ms
ptxas info    : Compiling entry function '_Z6secondv' for 'sm_90'
ptxas info    : Function properties for _Z6secondv
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
)";

TEST(ResourceReport, IsReadPerKernel) {
  const auto resources = parse_resources(kLog, {"_Z6secondv", "_Z5firstILi16EEvPf"});
  ASSERT_EQ(resources.size(), 2u);
  EXPECT_EQ(resources[0], (KernelResources{.registers = 32}));
  EXPECT_EQ(resources[1], (KernelResources{.registers = 255,
                                           .stack_bytes = 128,
                                           .spill_store_bytes = 64,
                                           .spill_load_bytes = 72,
                                           .static_shared_bytes = 2048}));
}

TEST(ResourceReport, OfSomethingElseIsZeros) {
  EXPECT_EQ(parse_resources("", {"_Z1kv"})[0], KernelResources());
  EXPECT_EQ(parse_resources("ptxas info    : Used many registers\nno numbers: Used  registers\n",
                            {"_Z1kv"})[0],
            KernelResources());
}

TEST(CompilerErrors, BeginAtTheFirstErrorAndEndInTime) {
  const std::string log =
      "warning: unused\ngemm.cuh(3): error: no such thing\n    here\n          ^\n\nmore\nand "
      "more\n";
  const std::string text = first_errors(log, 3);
  EXPECT_THAT(text, ::testing::StartsWith("gemm.cuh(3): error: no such thing"));
  EXPECT_THAT(text, ::testing::EndsWith("..."));
  EXPECT_THAT(text, Not(HasSubstr("unused")));
  EXPECT_THAT(text, Not(HasSubstr("more")));
}

TEST(CompilerErrors, WithoutTheWordShowTheBeginning) {
  EXPECT_EQ(first_errors("out of luck\n", 5), "out of luck");
}

}  // namespace
}  // namespace moetune::cuda

#include "cuda/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune::cuda {
namespace {

using ::testing::HasSubstr;

const ArchitectureLimits& limits(int sm) {
  const ArchitectureLimits* found = find_limits(sm);
  EXPECT_NE(found, nullptr) << sm;
  return *found;
}

TEST(Architecture, IsReadAsPeopleWriteIt) {
  for (const char* text : {"sm_90", "90", "9.0"}) {
    const auto arch = Architecture::parse(text);
    ASSERT_TRUE(arch.ok()) << text;
    EXPECT_EQ(arch->text(), "sm_90");
  }
  EXPECT_EQ(Architecture::parse("sm_120a")->text(), "sm_120a");
  EXPECT_EQ(Architecture::parse("12.0f")->text(), "sm_120f");
  EXPECT_EQ(Architecture::parse("sm_120a")->sm(), 120);
}

TEST(Architecture, RefusesWhatIsNone) {
  for (const char* text :
       {"", "sm_", "9", "sm_90b", "ninety", "9.00", "sm_1000", "-90", "sm_90 "}) {
    EXPECT_FALSE(Architecture::parse(text).ok()) << text;
  }
}

TEST(Planner, KnowsTheSharedMemoryOfEachArchitecture) {
  const std::pair<int, int> published[] = {{80, 166912}, {86, 101376},  {89, 101376},
                                           {90, 232448}, {100, 232448}, {120, 101376}};
  for (const auto& [sm, bytes] : published) EXPECT_EQ(limits(sm).shared_per_block, bytes) << sm;
  EXPECT_EQ(find_limits(70), nullptr);
}

// The failure people meet on an RTX PRO 6000: a 128x256 tile that needs exactly 1 KiB more than
// there is.
TEST(Planner, ExcludesTheTileThatIsOneKibibyteTooLargeForSm120AndSaysSo) {
  const KernelNeeds tile{.threads = 384, .registers = 168, .shared_bytes = 102'400};
  const Fit fit = plan_kernel(limits(120), tile);
  EXPECT_FALSE(fit.fits());
  EXPECT_EQ(fit.blocks_per_multiprocessor, 0);
  EXPECT_THAT(fit.reason, HasSubstr("102,400 bytes"));
  EXPECT_THAT(fit.reason, HasSubstr("sm_120 has 101,376"));
  EXPECT_TRUE(plan_kernel(limits(90), tile).fits());
  EXPECT_TRUE(
      plan_kernel(limits(120), {.threads = 384, .registers = 168, .shared_bytes = 101'376}).fits());
}

TEST(Planner, CountsTheKibibyteThatIsKeptForEachBlock) {
  // Three blocks of 32 KiB would fill 96 of sm_120's 100 KiB; with their reserve they take 99.
  EXPECT_EQ(plan_kernel(limits(120), {.threads = 128, .shared_bytes = 32 * 1024})
                .blocks_per_multiprocessor,
            3);
  // Four of 24 KiB fit exactly with theirs (100), and not with 128 bytes more each.
  EXPECT_EQ(plan_kernel(limits(120), {.threads = 128, .shared_bytes = 24 * 1024})
                .blocks_per_multiprocessor,
            4);
  EXPECT_EQ(plan_kernel(limits(120), {.threads = 128, .shared_bytes = 24 * 1024 + 1})
                .blocks_per_multiprocessor,
            3);
}

TEST(Planner, NamesWhatLimitsTheBlocks) {
  EXPECT_EQ(plan_kernel(limits(90), {.threads = 128, .registers = 32, .shared_bytes = 100 * 1024})
                .limited_by,
            "shared memory");
  EXPECT_EQ(plan_kernel(limits(90), {.threads = 128, .registers = 128}).limited_by, "registers");
  EXPECT_EQ(plan_kernel(limits(90), {.threads = 512, .registers = 24}).limited_by, "warps");
  EXPECT_EQ(plan_kernel(limits(90), {.threads = 32, .registers = 16}).limited_by, "blocks");
}

// Values of NVIDIA's occupancy calculator.
TEST(Planner, CountsBlocksAsTheOccupancyCalculatorDoes) {
  const auto blocks = [](int sm, int threads, int registers) {
    return plan_kernel(limits(sm), {.threads = threads, .registers = registers})
        .blocks_per_multiprocessor;
  };
  EXPECT_EQ(blocks(90, 256, 128), 2);
  EXPECT_EQ(blocks(90, 256, 64), 4);
  EXPECT_EQ(blocks(90, 256, 65), 3);  // 65 registers are given as 72.
  EXPECT_EQ(blocks(90, 384, 168), 1);
  EXPECT_EQ(blocks(86, 256, 32), 6);  // 48 warps
  EXPECT_EQ(blocks(80, 256, 32), 8);  // 64 warps
  EXPECT_EQ(blocks(90, 128, 255), 2);
  // 3 warps with 168 registers: a partition of the register file holds 3 such warps, so a
  // multiprocessor 12.
  EXPECT_EQ(blocks(90, 96, 168), 4);
}

TEST(Planner, ExcludesWhatCannotHaveTheBlocksItWasWrittenFor) {
  const KernelNeeds needs{.threads = 128, .registers = 128, .shared_bytes = 1024, .min_blocks = 5};
  const Fit fit = plan_kernel(limits(90), needs);
  EXPECT_FALSE(fit.fits());
  EXPECT_EQ(fit.blocks_per_multiprocessor, 4);
  EXPECT_THAT(fit.reason, HasSubstr("128 registers"));
  EXPECT_THAT(fit.reason, HasSubstr("4 blocks"));
  EXPECT_THAT(fit.reason, HasSubstr("5 wanted"));
}

TEST(Planner, ExcludesMoreThreadsOrRegistersThanThereAre) {
  EXPECT_THAT(plan_kernel(limits(90), {.threads = 1056}).reason, HasSubstr("1,056 threads"));
  EXPECT_THAT(plan_kernel(limits(90), {.threads = 0}).reason, HasSubstr("0 threads"));
  EXPECT_THAT(plan_kernel(limits(90), {.threads = 128, .registers = 256}).reason,
              HasSubstr("256 registers"));
}

TEST(Planner, RegisterBudgetIsTheMostThatStillFits) {
  for (const int sm : {80, 86, 90, 120}) {
    for (const int threads : {32, 96, 128, 256, 384, 512}) {
      for (int blocks = 1; blocks <= 4; ++blocks) {
        if (threads * blocks > limits(sm).warps_per_multiprocessor * 32) continue;
        const int budget = register_budget(limits(sm), threads, blocks);
        const auto with = [&](int registers) {
          return plan_kernel(limits(sm), {.threads = threads, .registers = registers})
              .blocks_per_multiprocessor;
        };
        EXPECT_GE(with(budget), blocks) << sm << " " << threads << " " << blocks;
        if (budget < limits(sm).registers_per_thread) {
          EXPECT_LT(with(budget + 1), blocks) << sm << " " << threads << " " << blocks;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moetune::cuda

#include "cpu/tactic.h"

#include <gtest/gtest.h>

#include "cpu/isa.h"
#include "cpu/layer_case.h"
#include "cpu/packed_runner.h"

namespace moetune::cpu {
namespace {

// Tables are data: those that this machine cannot run can be read as well.
std::vector<const KernelTable*> every_table() {
#if defined(__x86_64__)
  return {&kPortableKernels, &kAvx2Kernels, &kAvx512Kernels, &kAvx512Bf16Kernels};
#else
  return {&kPortableKernels};
#endif
}

Topology topology_with(size_t l1, size_t l2) {
  Topology topology;
  topology.processors = {{0, 0, 0}, {1, 1, 0}};
  topology.l1_bytes = l1;
  topology.l2_bytes = l2;
  return topology;
}

TEST(DefaultTactic, IsValidForEveryProblemOnEveryMachine) {
  for (const KernelTable* table : every_table())
    for (const WeightFormat format : kEveryFormat)
      for (const auto& [hidden, intermediate, experts, top_k] : std::vector<std::array<int64_t, 4>>{
               {1, 1, 1, 1}, {2048, 768, 128, 8}, {7168, 2048, 384, 8}, {2880, 360, 4, 4}})
        for (const Topology& topology :
             {topology_with(0, 0), topology_with(4 << 10, 64 << 10),
              topology_with(32 << 10, 512 << 10), topology_with(48 << 10, 2 << 20),
              topology_with(1 << 20, 1 << 25)})
          for (const int threads : {1, 2, 256})
            for (int64_t tokens = 1; tokens <= 65536; tokens = tokens * 3 / 2 + 1) {
              const FusedMoeSpec spec =
                  small_spec(hidden, intermediate, experts, static_cast<int>(top_k), format,
                             Activation::kSwiGlu);
              const LayerTactic tactic = default_tactic(spec, tokens, *table, topology, threads);
              ASSERT_TRUE(validate(tactic, *table, format).ok())
                  << table->name << " " << to_string(tactic.gemm1);
              const Space space = stage_space(*table, format);
              for (const StageTactic& stage : {tactic.gemm1, tactic.gemm2})
                ASSERT_EQ(space.why_excluded(to_tactic(stage), tokens), "")
                    << table->name << ": a default that tuning cannot start from";
            }
}

TEST(DefaultTactic, ConvertsWeightsOnceWhereManyTokensShareThem) {
  const Topology topology = topology_with(32 << 10, 512 << 10);
  for (const WeightFormat format : kEveryFormat) {
    const FusedMoeSpec spec = small_spec(2048, 768, 128, 8, format, Activation::kSwiGlu);
    for (const KernelTable* table : every_table()) {
      // Not worth it where the processor converts fp16 as it loads it.
      const bool stages = format_kernels(*table, format).stage != nullptr &&
                          (format != WeightFormat::kFp16 || table == &kPortableKernels);
      EXPECT_EQ(default_tactic(spec, 1, *table, topology, 2).gemm1.feed, Feed::kDirect);
      EXPECT_EQ(default_tactic(spec, 1024, *table, topology, 2).gemm1.feed,
                stages ? Feed::kStaged : Feed::kDirect)
          << table->name << " " << to_string(format);
    }
  }
}

TEST(DefaultTactic, LeavesWorkForEveryThread) {
  const FusedMoeSpec spec = small_spec(2048, 768, 128, 8, WeightFormat::kBf16, Activation::kSwiGlu);
  const Topology topology = topology_with(32 << 10, 512 << 10);
  for (const int threads : {1, 16, 64}) {
    const StageTactic stage = default_tactic(spec, 1, kPortableKernels, topology, threads).gemm1;
    EXPECT_GE(8 * (48 / stage.panels_per_task), threads);
  }
}

TEST(TacticValidation, NamesTheParameterThatIsWrong) {
  const StageTactic good;
  ASSERT_TRUE(validate(good, kPortableKernels, WeightFormat::kBf16).ok());
  const auto expect_named = [&](StageTactic stage, const char* name) {
    const Status status = validate(stage, kPortableKernels, WeightFormat::kBf16);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find(name), std::string::npos) << status.error().message;
    EXPECT_FALSE(status.error().hint.empty());
  };
  StageTactic bad = good;
  bad.token_tile = kPortableKernels.max_tile + 1;
  expect_named(bad, "token_tile");
  bad = good;
  bad.panels_per_task = 0;
  expect_named(bad, "panels_per_task");
  bad = good;
  bad.k_block = 64;
  expect_named(bad, "k_block");
  bad = good;
  bad.prefetch_bytes = -1;
  expect_named(bad, "prefetch_bytes");
}

#if defined(__x86_64__)
TEST(TacticValidation, RefusesToStageWhatIsMultipliedAsItIs) {
  StageTactic stage;
  stage.feed = Feed::kStaged;
  EXPECT_FALSE(validate(stage, kAvx512Bf16Kernels, WeightFormat::kBf16).ok());
  EXPECT_TRUE(validate(stage, kAvx512Bf16Kernels, WeightFormat::kNvfp4).ok());
}

// Its fp16 kernels are those of the set without bf16, so what is said of tiles must hold for both.
TEST(KernelTables, ThatShareKernelsHaveTheSameTiles) {
  ASSERT_EQ(kAvx512Bf16Kernels.fp16, kAvx512Kernels.fp16);
  EXPECT_EQ(kAvx512Bf16Kernels.max_tile, kAvx512Kernels.max_tile);
  EXPECT_EQ(kAvx512Bf16Kernels.stage_groups, kAvx512Kernels.stage_groups);
}
#endif

TEST(KernelTables, HaveKernelsForEveryFormat) {
  for (const KernelTable* table : every_table()) {
    ASSERT_LE(table->max_tile, kMaxTokenTile);
    for (const WeightFormat format : kEveryFormat) {
      const FormatKernels& kernels = format_kernels(*table, format);
      EXPECT_TRUE(kernels.pack_x && kernels.tile && kernels.multiply && kernels.x_block_items > 0)
          << table->name << " " << to_string(format);
      EXPECT_EQ(kernels.stage != nullptr, kernels.tile_staged != nullptr);
      EXPECT_EQ(kernels.stage != nullptr, kernels.staged_block_items > 0);
    }
  }
}

}  // namespace
}  // namespace moetune::cpu

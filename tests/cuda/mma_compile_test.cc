// Compiles a sample of cuda.mma's kernels for every architecture and compares what the planner said
// with what the compiler reports. Needs NVRTC, no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "cuda/mma/programs.h"
#include "cuda/nvrtc.h"
#include "mma_cases.h"

namespace moetune::cuda {
namespace {

struct Sample {
  std::string what;
  ArchitectureLimits limits;
  KernelNeeds needs;
  CompileRequest request;
};

/// A point of each stage of each scheme, another for each architecture and format.
std::vector<Sample> samples(const Architecture& arch) {
  std::vector<Sample> list;
  std::vector<FusedMoeSpec> specs;
  for (WeightFormat format : kAllFormats) specs.push_back(mma_spec(2048, 192, 64, 8, format));
  specs.push_back(mma_spec(2048, 192, 64, 8, WeightFormat::kFp8Block));
  specs.back().activations = ActivationFormat::kFp8Block;
  for (const FusedMoeSpec& spec : specs) {
    const WeightLayout layout = weight_layout(spec);
    const ArchitectureLimits& limits = *find_limits(arch.sm());
    for (const Scheme& scheme : make_schemes(spec, limits)) {
      const SchemePaths& paths = *find_scheme(scheme.name);
      for (int stage = 0; stage < 2; ++stage) {
        const GemmPath path = stage == 0 ? paths.gemm1 : paths.gemm2;
        if (scheme.name == "stream-tile") continue;  // Its stages are those of the others.
        const int64_t tokens = path == GemmPath::kTile ? 512 : path == GemmPath::kStream ? 40 : 2;
        const uint64_t seed =
            static_cast<uint64_t>(arch.sm()) * 10 + static_cast<uint64_t>(spec.weights);
        for (const Tactic& point :
             sample_points(scheme.stages[stage].space, tokens, points_per_stage(1), seed)) {
          const GemmTactic tactic = read_gemm_tactic(path, point);
          const GemmRole role = role_of(spec, layout, stage);
          const std::string text = arch.text() + " " + kernel_expression(tactic, layout, role);
          list.push_back(
              {text, limits, estimate_needs(tactic, layout, *role.matrix),
               compile_request(
                   {text, kernel_source(path), {kernel_expression(tactic, layout, role)}}, arch)});
        }
      }
    }
  }
  return list;
}

class MmaCompileSlow : public ::testing::TestWithParam<int> {};

TEST_P(MmaCompileSlow, KernelsTakeWhatThePlannerSays) {
  const auto nvrtc = load_nvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().message;
  const Architecture arch{GetParam() / 10, GetParam() % 10};
  if (!(*nvrtc)->supports(arch))
    GTEST_SKIP() << "NVRTC " << (*nvrtc)->version_text() << " does not know " << arch.text();
  const std::vector<Sample> list = samples(arch);
  ASSERT_GE(list.size(), 10u);
  std::vector<CompileRequest> requests;
  for (const Sample& sample : list) requests.push_back(sample.request);
  const auto programs = default_jit().compile_all(requests);
  for (size_t i = 0; i < list.size(); ++i) {
    ASSERT_TRUE(programs[i].ok()) << list[i].what << ": " << programs[i].error().message;
    const KernelResources& got = programs[i].value()->kernels[0].resources;
    const KernelNeeds& said = list[i].needs;
    // Spills of a few words are what min_blocks asks for at the edge of the budget; more is a
    // tactic that should be excluded.
    EXPECT_LE(got.spill_store_bytes, 64) << list[i].what;
    EXPECT_LE(said.registers, got.registers + 24)
        << list[i].what << ": good tactics would be excluded";
    EXPECT_LE(got.static_shared_bytes, said.shared_bytes + 16) << list[i].what;
    EXPECT_LE(got.registers, register_budget(list[i].limits, said.threads, said.min_blocks))
        << list[i].what;
  }
}

TEST_P(MmaCompileSlow, RoutingCombiningAndPackingCompile) {
  const auto nvrtc = load_nvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().message;
  const Architecture arch{GetParam() / 10, GetParam() % 10};
  if (!(*nvrtc)->supports(arch))
    GTEST_SKIP() << "NVRTC " << (*nvrtc)->version_text() << " does not know " << arch.text();
  const std::string ns = "moetune::kernels::";
  const CompileRequest requests[] = {
      compile_request({"route",
                       "cuda/kernels/route.cuh",
                       {ns + "route<8>", ns + "route_and_group<8>", ns + "route_and_group_few<8>",
                        ns + "group_few_pairs<0>", ns + "group_pairs<0>", ns + "group_count<0>",
                        ns + "group_place<0>", ns + "append_shared<0>"}},
                      arch),
      compile_request({"combine",
                       "cuda/kernels/combine.cuh",
                       {ns + "combine<false>", ns + "align_rows<0>", ns + "round_rows<0>"}},
                      arch),
      compile_request(
          {"pack",
           "cuda/kernels/pack.cuh",
           {ns + "pack_halves<false>", ns + "pack_fp4<true, 1>", ns + "pack_fp4<false, 5>",
            ns + "pack_fp8<false, 4>", ns + "pack_fp8<true, 3>"}},
          arch),
  };
  for (const auto& program : default_jit().compile_all(requests)) {
    ASSERT_TRUE(program.ok()) << program.error().message;
    for (const CompiledKernel& kernel : (*program)->kernels)
      EXPECT_EQ(kernel.resources.spill_store_bytes, 0) << kernel.expression;
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, MmaCompileSlow, ::testing::Values(80, 86, 89, 90, 100, 120),
                         [](const auto& which) { return "sm_" + std::to_string(which.param); });

}  // namespace
}  // namespace moetune::cuda

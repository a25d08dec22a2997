#include "exchange/plan_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "base/json.h"
#include "exchange/engine_plans.h"

namespace moetune::exchange {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// What an engine runs, by its own documented rule, read from the file's text: the member whose
/// name is nearest as a number, the first of several. Shares nothing with what wrote the file.
int64_t engine_block_m(const Json& file, int64_t tokens) {
  int64_t best = std::numeric_limits<int64_t>::max();
  int64_t block_m = 0;
  for (const auto& [key, value] : file.items()) {
    if (key == "triton_version") continue;
    const int64_t distance = std::abs(std::stoll(key) - tokens);
    if (distance >= best) continue;
    best = distance;
    block_m = value["BLOCK_SIZE_M"].get<int64_t>();
  }
  return block_m;
}

/// What should run: the plan's, and of the host's defaults the one of that size.
int64_t planned_block_m(const std::vector<Part>& parts, int64_t tokens) {
  for (const Part& part : parts) {
    if (part.from <= tokens && tokens <= part.to && part.block_m != 0) return part.block_m;
  }
  return tokens <= 32 ? 1016 : tokens <= 96 ? 1032 : 1064;
}

Json file_of(const Plan& plan, const ExportOptions& options = {}) {
  const auto exported = export_plan(plan, options);
  EXPECT_TRUE(exported.ok()) << exported.error().message;
  const auto text = print_triton_table(exported->table, options.engine);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return *parse_json(*text, "file");
}

TEST(PlanExport, EveryNumberOfTokensGetsExactlyItsDecision) {
  const std::vector<std::vector<Part>> plans = {
      {{1, 1, 16}, {2, 7, 0}, {8, 63, 32}, {64, 64, 48}, {65, 500, 0}, {501, 1024, 64}},
      {{1, 3, 0}, {4, 40, 16}, {41, 41, 0}, {42, 42, 32}, {43, 300, 0}},
      {{1, 512, 16}},
      {{1, 512, 0}},
      {{1, 99, 16}, {100, 101, 32}, {102, 4096, 16}},
  };
  for (const std::vector<Part>& parts : plans) {
    const Json file = file_of(engine_plan(sample_layer(), parts, host_json()));
    for (int64_t tokens = 1; tokens <= parts.back().to + 5000; ++tokens)
      ASSERT_EQ(engine_block_m(file, tokens), planned_block_m(parts, tokens))
          << tokens << " tokens in " << file.dump();
  }
}

TEST(PlanExport, AboveThePlanTheEnginesDefaultComesBack) {
  const Json file = file_of(engine_plan(sample_layer(), {{1, 64, 16}}, host_json()));
  EXPECT_EQ(engine_block_m(file, 64), 16);
  EXPECT_EQ(engine_block_m(file, 65), 1032);
  EXPECT_EQ(engine_block_m(file, 1 << 20), 1064);
}

TEST(PlanExport, APlanThatDoesNotKnowTheDefaultsSaysSo) {
  const Plan plan = engine_plan(sample_layer(), {{1, 8, 0}, {9, 64, 16}}, "");
  const auto exported = export_plan(plan, {.device_name = "NVIDIA H200"});
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  EXPECT_THAT(exported->notes, Contains(HasSubstr("does not say how vLLM's default changes")));
  EXPECT_THAT(exported->notes, Contains(HasSubstr("above 64 tokens")));
  EXPECT_EQ(exported->table.nearest(3).tactic.number("BLOCK_SIZE_M"), 256);
  EXPECT_EQ(exported->tuned_tokens, 56);
  const auto nameless = export_plan(plan, {});
  ASSERT_FALSE(nameless.ok());
  EXPECT_THAT(nameless.error().hint, HasSubstr("--device-name"));
}

TEST(PlanExport, NamesTheFileByTheHostsDeviceAndTheWeights) {
  const auto name = [](WeightFormat weights, Engine engine) {
    const Plan plan =
        engine_plan(sample_layer(weights), {{1, 8, 16}}, host_json(facts_of(engine).name, "0.11.1"),
                    facts_of(engine).runner);
    const auto exported = export_plan(plan, {.engine = engine});
    return exported.ok() ? exported->name.text(engine) : exported.error().message;
  };
  EXPECT_EQ(name(WeightFormat::kBf16, Engine::kVllm), "E=128,N=768,device_name=NVIDIA_H200.json");
  EXPECT_EQ(name(WeightFormat::kFp8Block, Engine::kVllm),
            "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json");
  EXPECT_EQ(name(WeightFormat::kFp8Block, Engine::kSglang),
            "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json");
  EXPECT_THAT(name(WeightFormat::kNvfp4, Engine::kVllm), HasSubstr("does not run nvfp4 weights"));
}

TEST(PlanExport, CountsFusedSharedExperts) {
  FusedMoeSpec spec = sample_layer();
  spec.shared_experts = 1;
  const auto exported = export_plan(engine_plan(spec, {{1, 8, 16}}, host_json()), {});
  ASSERT_TRUE(exported.ok());
  EXPECT_EQ(exported->name.experts, 129);
}

TEST(PlanExport, NamesTritonOnlyWhereTheEngineReadsThat) {
  const auto has_version = [](const char* engine_version, Engine engine) {
    const Plan plan =
        engine_plan(sample_layer(), {{1, 8, 16}}, host_json(facts_of(engine).name, engine_version),
                    facts_of(engine).runner);
    return file_of(plan, {.engine = engine}).contains("triton_version");
  };
  EXPECT_TRUE(has_version("0.11.0", Engine::kVllm));
  EXPECT_TRUE(has_version("0.33.0", Engine::kVllm));
  EXPECT_FALSE(has_version("0.10.1", Engine::kVllm)) << "it would end at the word";
  EXPECT_FALSE(has_version("0.5.23", Engine::kSglang)) << "it would end at the word";
}

TEST(PlanExport, SaysWhereItIsToRunWithAnotherTriton) {
  const Plan plan = engine_plan(sample_layer(), {{1, 8, 16}}, host_json());
  const auto exported = export_plan(plan, {.triton_version = {{3, 5, 1}}});
  ASSERT_TRUE(exported.ok());
  EXPECT_EQ(exported->triton_version.text(), "3.5.1");
  EXPECT_EQ(exported->table.triton_version, "3.4.0");
  EXPECT_THAT(exported->notes, Contains(HasSubstr("tuned with Triton 3.4.0")));
}

TEST(PlanExport, RefusesWhatIsNotTheEnginesKernel) {
  Plan plan = engine_plan(sample_layer(), {{1, 8, 16}, {9, 64, 32}}, host_json());
  plan.decisions[1].candidate.runner = "cuda.mma";
  const auto mixed = export_plan(plan, {});
  ASSERT_FALSE(mixed.ok());
  EXPECT_THAT(mixed.error().message, HasSubstr("from 9 tokens on cuda.mma runs"));
  plan.decisions[1].candidate = plan.decisions[0].candidate;
  plan.decisions[1].candidate.stages.push_back({"second", triton_tactic(16)});
  const auto staged = export_plan(plan, {});
  ASSERT_FALSE(staged.ok());
  EXPECT_THAT(staged.error().message, HasSubstr("2 stages"));
  plan.decisions.pop_back();
  const auto with_gap = export_plan(plan, {});
  EXPECT_FALSE(with_gap.ok()) << "9 to 64 tokens are nobody's";
}

TEST(PlanExport, AHostThatMakesNoSenseIsAnErrorWithItsPlace) {
  const auto message = [](const std::string& host) {
    const auto exported = export_plan(engine_plan(sample_layer(), {{1, 8, 0}}, host), {});
    return exported.ok() ? "" : exported.error().message;
  };
  EXPECT_THAT(message("[]"), HasSubstr("host"));
  EXPECT_THAT(message(R"({"device_name": 3})"), HasSubstr("host.device_name"));
  EXPECT_THAT(message(R"({"defaults": [{"from": 2, "stages": []}]})"),
              HasSubstr("host.defaults[0].from: 2"));
  EXPECT_THAT(message(R"({"device_name": "X", "defaults": [{"from": 1, "stages": []}]})"),
              HasSubstr("0 stages"));
  EXPECT_THAT(message(R"({"defaults": [{"from": 1, "stages": []}, {"from": 1, "stages": []}]})"),
              HasSubstr("host.defaults[1].from: 1"));
}

}  // namespace
}  // namespace moetune::exchange

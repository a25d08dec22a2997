#include "exchange/plan_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "exchange/engine_plans.h"

namespace moetune::exchange {
namespace {

using Kind = TableVerdict::Kind;

std::vector<Kind> kinds_of(const TritonTable& table, const Plan& plan) {
  std::vector<Kind> kinds;
  const auto verdicts = compare_with_plan(table, plan);
  EXPECT_TRUE(verdicts.ok());
  for (const TableVerdict& verdict : *verdicts) kinds.push_back(verdict.kind);
  return kinds;
}

TEST(PlanCompare, SaysWhereAFileWasMeasuredSlowerThanTheDefault) {
  Plan plan = engine_plan(sample_layer(), {{1, 7, 16}, {8, 63, 0}, {64, 128, 0}}, "");
  plan.decisions[0].evidence.speedup = 1.2;
  Candidate lost = plan.decisions[1].candidate;
  lost.stages[0].tactic = triton_tactic(32);
  plan.decisions[1].evidence.challenger = lost.text();
  plan.decisions[1].evidence.speedup = 0.9;
  plan.decisions[1].evidence.speedup_high = 0.95;
  TritonTable table;
  table.entries = {{1, triton_tactic(16)}, {8, triton_tactic(32)}, {64, triton_tactic(48)}};
  EXPECT_THAT(kinds_of(table, plan),
              testing::ElementsAre(Kind::kSame, Kind::kSlower, Kind::kUnknown));
  EXPECT_EQ(summary_of(*compare_with_plan(table, plan)),
            "as tuned at 1 of 3 numbers of tokens; measured slower than the default at 8 (0.90x)");
  table.entries[0].tactic = triton_tactic(64);
  EXPECT_EQ(kinds_of(table, plan)[0], Kind::kBetter);
  plan.decisions[1].evidence.speedup_high = 1.01;
  EXPECT_EQ(kinds_of(table, plan)[1], Kind::kUnknown) << "not shown to be slower";
}

TEST(PlanCompare, TheOrderOfParametersIsNoDifference) {
  const Plan plan = engine_plan(sample_layer(), {{1, 8, 16}}, "");
  Tactic::Parameters reversed = triton_tactic(16).parameters();
  std::reverse(reversed.begin(), reversed.end());
  TritonTable table;
  table.entries = {{1, Tactic(reversed)}};
  EXPECT_THAT(kinds_of(table, plan), testing::ElementsAre(Kind::kSame));
}

TEST(PlanCompare, FindsThePlanOfTheLayerAndTheEngine) {
  TunedConfiguration configuration;
  configuration.put(engine_plan(sample_layer(WeightFormat::kFp8), {{1, 8, 16}}, ""));
  configuration.put(engine_plan(sample_layer(), {{1, 8, 16}}, ""));
  const Plan* plan = find_engine_plan(configuration, Engine::kVllm, sample_layer());
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->problem, moe_problem(sample_layer()));
  EXPECT_EQ(find_engine_plan(configuration, Engine::kSglang, sample_layer()), nullptr);
  FusedMoeSpec other = sample_layer();
  other.hidden = 4096;
  EXPECT_EQ(find_engine_plan(configuration, Engine::kVllm, other), nullptr);
}

}  // namespace
}  // namespace moetune::exchange

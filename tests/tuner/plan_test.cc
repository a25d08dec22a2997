#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "moetune/plan.h"
#include "tuner/plan_edit.h"
#include "tuner/sample_plans.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string why_uncovered(Plan plan) {
  const Status status = plan.check_coverage();
  if (status.ok()) return {};
  EXPECT_EQ(status.error().code, ErrorCode::kParse);
  return status.error().message;
}

TEST(Plan, IntervalsMustCoverAllSizesInOrder) {
  EXPECT_EQ(why_uncovered(sample_plan({{1, 0}, {7, 4}, {64, 8}})), "");
  Plan gap = sample_plan({{1, 0}, {7, 4}, {64, 8}});
  gap.decisions[2].from = 10;
  EXPECT_THAT(why_uncovered(gap), HasSubstr("decisions[2]: nothing covers 8..9"));
  Plan overlap = sample_plan({{1, 0}, {7, 4}, {64, 8}});
  overlap.decisions[2].from = 5;
  EXPECT_THAT(why_uncovered(overlap), HasSubstr("decisions[2]: 5..64"));
  Plan reversed = sample_plan({{4, 0}, {7, 4}});
  reversed.decisions[1].to = 4;
  EXPECT_THAT(why_uncovered(reversed), HasSubstr("decisions[1]: the interval 5..4 is empty"));
  Plan unsorted = sample_plan({{4, 0}, {7, 4}});
  std::swap(unsorted.decisions[0], unsorted.decisions[1]);
  EXPECT_THAT(why_uncovered(unsorted), HasSubstr("decisions[0]: nothing covers 1..4"));
  Plan short_of_maximum = sample_plan({{4, 0}});
  short_of_maximum.max_tokens = 8;
  EXPECT_THAT(why_uncovered(short_of_maximum), HasSubstr("cover 1..4 of 1..8"));
  Plan beyond_maximum = sample_plan({{4, 0}});
  beyond_maximum.max_tokens = 3;
  EXPECT_THAT(why_uncovered(beyond_maximum), HasSubstr("ends above max_tokens"));
  EXPECT_NE(why_uncovered(Plan()), "");
}

TEST(Plan, AHugeIntervalDoesNotOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  Plan plan = sample_plan({{4, 0}});
  plan.decisions[0].to = kMax;
  plan.max_tokens = kMax;
  EXPECT_NE(why_uncovered(plan), "") << "sizes end below the largest integer";
}

// The intervals of a plan as "1-4:2 5-9:0", from-to:tile.
std::string intervals(const Plan& plan) {
  std::string text;
  for (const Decision& decision : plan.decisions) {
    if (!text.empty()) text += ' ';
    text += std::to_string(decision.from) + '-' + std::to_string(decision.to) + ':' +
            std::to_string(decision.candidate.stages.front().tactic.number("tile"));
  }
  return text;
}

TEST(PlanEdit, ANewDecisionReplacesWhatItCovers) {
  const Candidate fallback = sample_candidate(0);
  const auto with = [&](Plan plan, int64_t from, int64_t to) {
    const Plan edited = with_decision(std::move(plan), sample_decision(from, to, 99), fallback);
    EXPECT_EQ(why_uncovered(edited), "");
    return intervals(edited);
  };
  EXPECT_EQ(with(Plan(), 1, 1), "1-1:99");
  EXPECT_EQ(with(Plan(), 4, 7), "1-3:0 4-7:99");
  const Plan plan = sample_plan({{3, 1}, {9, 2}, {20, 3}});
  EXPECT_EQ(with(plan, 4, 9), "1-3:1 4-9:99 10-20:3");
  EXPECT_EQ(with(plan, 5, 8), "1-3:1 4-4:2 5-8:99 9-9:2 10-20:3");
  EXPECT_EQ(with(plan, 2, 12), "1-1:1 2-12:99 13-20:3");
  EXPECT_EQ(with(plan, 1, 20), "1-20:99");
  EXPECT_EQ(with(plan, 15, 30), "1-3:1 4-9:2 10-14:3 15-30:99");
  EXPECT_EQ(with(plan, 30, 31), "1-3:1 4-9:2 10-20:3 21-29:0 30-31:99");
}

TEST(PlanEdit, AnySequenceOfDecisionsLeavesAPlanThatCoversAndSaysTheLastOfEachSize) {
  constexpr int64_t kSizes = 40;
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    Plan plan;
    std::vector<int64_t> expected(kSizes + 1, 0);
    int64_t end = 0;
    for (int64_t tile = 1; tile <= 12; ++tile) {
      const int64_t from = 1 + static_cast<int64_t>(random() % kSizes);
      const int64_t to = from + static_cast<int64_t>(random() % (kSizes - from + 1));
      plan = with_decision(std::move(plan), sample_decision(from, to, tile), sample_candidate(0));
      for (int64_t size = from; size <= to; ++size) expected[static_cast<size_t>(size)] = tile;
      end = std::max(end, to);
      ASSERT_EQ(why_uncovered(plan), "") << intervals(plan);
      ASSERT_EQ(plan.max_tokens, end);
      for (const Decision& decision : plan.decisions) {
        for (int64_t size = decision.from; size <= decision.to; ++size) {
          ASSERT_EQ(decision.candidate, sample_candidate(expected[static_cast<size_t>(size)]))
              << intervals(plan);
        }
      }
    }
  }
}

TEST(Device, DifferencesAreNamedAndOnlyTheIdentityIsTheKey) {
  const DeviceProperties here = sample_device();
  DeviceProperties there = here;
  there.name = "Another name";
  there.toolchain["compiler"] = "gcc 13";
  EXPECT_EQ(here.key(), "cpu cores=2 isa=avx2");
  EXPECT_EQ(here.key(), there.key());
  EXPECT_TRUE(here.differences(there).empty());
  EXPECT_THAT(here.toolchain_differences(there),
              ElementsAre("compiler: gcc 12 here, gcc 13 there"));
  there.identity["cores"] = "8";
  there.identity["memory"] = "1 GB";
  EXPECT_THAT(here.differences(there),
              ElementsAre("cores: 2 here, 8 there", "memory: nothing here, 1 GB there"));
  EXPECT_TRUE(here.is_sibling(there));
  there.identity["isa"] = "avx512";
  EXPECT_FALSE(here.is_sibling(there));
  there = here;
  there.kind = "cuda";
  EXPECT_FALSE(here.is_sibling(there));
}

}  // namespace
}  // namespace moetune

#include "ops/moe/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/random.h"
#include "ops/moe/reference.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

FusedMoeSpec spec_of(int64_t experts, int top_k, RouterSpec router = {}) {
  return {.hidden = 8,
          .intermediate = 8,
          .experts = experts,
          .global_experts = experts,
          .top_k = top_k,
          .router = router};
}

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed routed(const FusedMoeSpec& spec, const std::vector<float>& logits,
              const std::vector<float>& bias = {}) {
  const auto k = static_cast<size_t>(spec.top_k);
  Routed result{std::vector<int32_t>(k, -7), std::vector<float>(k)};
  route(spec, logits.data(), bias.data(), result.ids.data(), result.weights.data());
  return result;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Router, SoftmaxRenormalised) {
  const Routed r = routed(spec_of(4, 2), {0, 3, 1, 2});
  EXPECT_THAT(r.ids, ElementsAre(1, 3));
  EXPECT_FLOAT_EQ(r.weights[0], static_cast<float>(std::exp(3) / (std::exp(3) + std::exp(2))));
  EXPECT_FLOAT_EQ(r.weights[1], static_cast<float>(std::exp(2) / (std::exp(3) + std::exp(2))));
}

TEST(Router, SoftmaxOverAllWithoutRenormalising) {
  const Routed r = routed(spec_of(4, 2, {.renormalise = false}), {0, 3, 1, 2});
  const double sum = std::exp(0) + std::exp(1) + std::exp(2) + std::exp(3);
  EXPECT_FLOAT_EQ(r.weights[0], static_cast<float>(std::exp(3) / sum));
  EXPECT_FLOAT_EQ(r.weights[1], static_cast<float>(std::exp(2) / sum));
}

TEST(Router, ScoreAfterTopKIsOverTheChosenOnly) {
  RouterSpec router{.score_after_top_k = true, .renormalise = false, .scale = 3};
  const Routed r = routed(spec_of(4, 2, router), {0, 3, 1, 2});
  EXPECT_FLOAT_EQ(r.weights[0] + r.weights[1], 3);
  EXPECT_FLOAT_EQ(r.weights[1] / r.weights[0], static_cast<float>(std::exp(-1)));
}

TEST(Router, SelectionBiasChoosesButDoesNotWeigh) {
  RouterSpec router{.score = Score::kSigmoid, .selection_bias = true, .renormalise = false};
  const Routed r = routed(spec_of(3, 1, router), {1, 0, -1}, {0, 0.5f, 0});
  EXPECT_THAT(r.ids, ElementsAre(1));
  EXPECT_FLOAT_EQ(r.weights[0], 0.5f);
}

TEST(Router, SigmoidFamiliesAddTheirEpsilonAndSoftmaxDoesNot) {
  // Scores of about 1e-26 and 1e-13: next to them 1e-20 is a great deal, and nothing.
  RouterSpec router{.score = Score::kSigmoid};
  const double tiny = sigmoid(-60);
  const Routed sigmoids = routed(spec_of(2, 2, router), {-60, -60});
  EXPECT_NEAR(sigmoids.weights[0], tiny / (2 * tiny + 1e-20), 1e-11);
  router.score = Score::kSqrtSoftplus;
  EXPECT_FLOAT_EQ(routed(spec_of(2, 2, router), {-60, -60}).weights[0], 0.5f);
  const Routed softmax = routed(spec_of(3, 1), {0, 0, -60});
  EXPECT_EQ(softmax.weights[0], 1);
}

TEST(Router, SqrtSoftplusOfLargeAndSmallLogits) {
  RouterSpec router{.score = Score::kSqrtSoftplus, .renormalise = false};
  const Routed r = routed(spec_of(3, 3, router), {100, 0, -20});
  EXPECT_FLOAT_EQ(r.weights[0], 10);
  EXPECT_FLOAT_EQ(r.weights[1], static_cast<float>(std::sqrt(std::log(2.0))));
  EXPECT_FLOAT_EQ(r.weights[2], static_cast<float>(std::exp(-10.0)));
}

TEST(Router, EqualScoresGoToTheLowestIds) {
  EXPECT_THAT(routed(spec_of(6, 3), {1, 1, 1, 1, 1, 1}).ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(routed(spec_of(6, 3), {0, 2, 1, 2, 1, 1}).ids, ElementsAre(1, 3, 2));
  EXPECT_THAT(routed(spec_of(4, 2), {0.0f, -0.0f, 0.0f, -0.0f}).ids, ElementsAre(0, 1));
}

TEST(Router, GroupsLiveByTheirTwoBest) {
  RouterSpec router{.score = Score::kSigmoid, .groups = 3, .top_groups = 1};
  // The best expert is in the first group; the best two together are in the second.
  const std::vector<float> logits = {4, -4, -4, /**/ 2, 1.9f, -4, /**/ 1, 1, 1};
  EXPECT_THAT(routed(spec_of(9, 2, router), logits).ids, ElementsAre(3, 4));
  // Taken to the third expert of the group: what is masked counts as -infinity, not as 0 (gates of
  // -4 score above 0 too).
  EXPECT_THAT(routed(spec_of(9, 3, router), logits).ids, ElementsAre(3, 4, 5));
}

TEST(Router, MaskedGroupsLoseAgainstNegativeBiasedScores) {
  RouterSpec router{.score = Score::kSigmoid, .selection_bias = true, .groups = 2, .top_groups = 1};
  const Routed r = routed(spec_of(4, 2, router), {0, 0, 0, 0}, {-3, -3, -2, -2.5f});
  EXPECT_THAT(r.ids, ElementsAre(2, 3));
}

TEST(Router, EqualGroupsGoToTheLowest) {
  RouterSpec router{.groups = 4, .top_groups = 2};
  EXPECT_THAT(routed(spec_of(8, 4, router), std::vector<float>(8, 1.0f)).ids,
              ElementsAre(0, 1, 2, 3));
}

TEST(Router, GroupsOfOneExpert) {
  RouterSpec router{.score = Score::kSigmoid, .groups = 4, .top_groups = 2};
  EXPECT_THAT(routed(spec_of(4, 2, router), {0, 3, 1, 2}).ids, ElementsAre(1, 3));
}

TEST(Router, SaturatedScoresKeepTheOrderOfTheirLogits) {
  RouterSpec router{.score = Score::kSigmoid};
  EXPECT_THAT(routed(spec_of(3, 2, router), {50, 60, 70}).ids, ElementsAre(2, 1));
  const Routed r = routed(spec_of(3, 2), {-400, 0, -200});
  EXPECT_THAT(r.ids, ElementsAre(1, 2));
}

TEST(Router, LargeLogitsDoNotOverflow) {
  const Routed r = routed(spec_of(3, 2), {1e30f, 1e30f, -1e30f});
  EXPECT_THAT(r.weights, ElementsAre(0.5f, 0.5f));
  EXPECT_EQ(routed(spec_of(2, 1, {.score = Score::kSigmoid}), {-1e30f, -2e30f}).ids[0], 0);
}

TEST(Router, IdsAreDistinctAndInRangeWhateverTheLogitsAre) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    RouterSpec router{.score = static_cast<Score>(random.below(3)),
                      .selection_bias = random.below(2) == 1};
    if (random.below(2) == 1) router.groups = router.top_groups = 4;
    if (random.below(2) == 1) router.top_groups = 2;
    router.groups = std::max(router.groups, router.top_groups);
    const FusedMoeSpec spec = spec_of(16, 8, router);
    std::vector<float> logits(16);
    std::vector<float> bias(16);
    const float strange[] = {nan, kInfinity, -kInfinity, 3e38f, -3e38f, 0, 1, 2};
    for (float& logit : logits) logit = strange[random.below(8)];
    for (float& value : bias) value = strange[random.below(8)];
    const Routed r = routed(spec, logits, bias);
    const std::set<int32_t> distinct(r.ids.begin(), r.ids.end());
    ASSERT_EQ(distinct.size(), 8u);
    ASSERT_GE(*distinct.begin(), 0);
    ASSERT_LT(*distinct.rbegin(), 16);
  }
}

TEST(Router, NanLogitsAreNeverChosenWhileOthersAreLeft) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(routed(spec_of(4, 2), {nan, 1, nan, 2}).ids, ElementsAre(3, 1));
}

// Every combination of the switches, on logits from a coarse grid, so that equal scores are common
// and unequal ones are far apart.
TEST(Router, AgreesWithTheReference) {
  Random random(2);
  for (int round = 0; round < 6000; ++round) {
    RouterSpec router;
    router.score = static_cast<Score>(round % 3);
    router.selection_bias = (round / 3) % 2 == 1;
    router.score_after_top_k = (round / 6) % 2 == 1;
    router.renormalise = (round / 12) % 2 == 1;
    router.groups = std::array{1, 1, 4, 8}[static_cast<size_t>(round / 24 % 4)];
    router.top_groups = std::max(1, router.groups / 2);
    router.scale = 2.5f;
    const FusedMoeSpec spec = spec_of(32, std::array{1, 4, 8}[random.below(3)], router);
    std::vector<float> logits(32);
    std::vector<float> bias(32);
    for (float& logit : logits) logit = static_cast<float>(random.below(64)) / 8 - 4;
    for (float& value : bias) value = static_cast<float>(random.below(8)) / 64;
    const Routed r = routed(spec, logits, bias);
    const std::vector<ReferenceSlot> slots = reference_route(spec, logits, bias);
    for (size_t i = 0; i < slots.size(); ++i) {
      ASSERT_EQ(r.ids[i], slots[i].expert) << "round " << round;
      ASSERT_NEAR(r.weights[i], slots[i].weight, 2e-6 * slots[i].weight) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace moetune

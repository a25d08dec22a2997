#include "tuner/interval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace moetune {
namespace {

using ::testing::ElementsAre;

constexpr int kNobody = Segment::kNobody;

TEST(Zones, LieBelowTheFirstBucketAndBetweenNeighbours) {
  const std::vector<Zone> zones = zones_between({4, 5, 9});
  ASSERT_EQ(zones.size(), 2u);
  EXPECT_EQ(zones[0].from, 1);
  EXPECT_EQ(zones[0].to, 3);
  EXPECT_EQ(zones[0].lower, kNobody);
  EXPECT_EQ(zones[0].upper, 0);
  EXPECT_EQ(zones[1].from, 6);
  EXPECT_EQ(zones[1].to, 8);
  EXPECT_EQ(zones[1].lower, 1);
  EXPECT_EQ(zones[1].upper, 2);
}

TEST(Split, OneAnswerAtTheFarEndSettlesTheUsualCase) {
  int asked = 0;
  const auto judge = [&](int64_t tokens) -> std::optional<int> {
    EXPECT_EQ(tokens, 127);
    ++asked;
    return 3;
  };
  EXPECT_THAT(split(65, 127, 3, judge), ElementsAre(Segment{65, 127, 3}));
  EXPECT_EQ(asked, 1);
}

TEST(Split, FindsACrossoverWithinAnEighthOfTheZone) {
  for (int64_t crossover = 65; crossover <= 127; ++crossover) {
    int asked = 0;
    const auto segments = joined(split(65, 127, 0, [&](int64_t tokens) -> std::optional<int> {
      ++asked;
      return tokens < crossover ? 0 : 1;
    }));
    EXPECT_LE(asked, 5);
    int64_t first_of_other = 0;
    int64_t next = 65;
    for (const Segment& segment : segments) {
      EXPECT_EQ(segment.from, next);
      next = segment.to + 1;
      if (segment.owner == 1) first_of_other = segment.from;
    }
    EXPECT_EQ(next, 128);
    EXPECT_GE(first_of_other,
              crossover);  // The other one gets only what it was shown to be better at.
    EXPECT_LE(first_of_other, crossover + 8);
  }
}

TEST(Split, WorksDownwardsWhereTheOwnerIsAbove) {
  const auto segments = joined(split(
      127, 65, 1, [](int64_t tokens) -> std::optional<int> { return tokens > 90 ? 1 : kNobody; }));
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].owner, kNobody);
  EXPECT_EQ(segments[0].from, 65);
  EXPECT_LE(segments[0].to, 90);
  EXPECT_EQ(segments[1].to, 127);
}

TEST(Split, WhatCannotBeFoundOutBelongsToNobody) {
  const auto unknown = [](int64_t) { return std::optional<int>(); };
  EXPECT_THAT(split(65, 127, 0, unknown), ElementsAre(Segment{65, 127, kNobody}));

  int asked = 0;
  const auto gives_up = [&](int64_t) -> std::optional<int> {
    return ++asked == 1 ? std::optional(1) : std::nullopt;
  };
  EXPECT_THAT(joined(split(65, 127, 0, gives_up)),
              ElementsAre(Segment{65, 126, kNobody}, Segment{127, 127, 1}));
}

TEST(Split, ASizeOrTwo) {
  EXPECT_THAT(split(3, 3, 0, [](int64_t) { return std::optional(1); }),
              ElementsAre(Segment{3, 3, 1}));
  EXPECT_THAT(split(5, 6, 0, [](int64_t tokens) { return std::optional(tokens == 5 ? 0 : 1); }),
              ElementsAre(Segment{5, 5, 0}, Segment{6, 6, 1}));
}

}  // namespace
}  // namespace moetune

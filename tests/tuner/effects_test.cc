#include "tuner/effects.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace moetune {
namespace {

// Rows, columns, depth; the time is a product of one factor each.
struct World {
  World() {
    for (int64_t rows : {16, 32, 64})
      for (int64_t columns : {32, 64, 128, 256})
        for (int64_t depth : {64, 128}) {
          points.push_back(
              {"r",
               1,
               "s",
               {{"main", Tactic({{"rows", rows}, {"columns", columns}, {"depth", depth}})}}});
          us.push_back(100 * (1 + std::abs(std::log2(rows / 32.0)) / 4) *
                       (1 + std::abs(std::log2(columns / 128.0)) / 5) * (depth == 64 ? 1.1 : 1.0));
        }
    for (const Candidate& point : points) pointers.push_back(&point);
  }
  std::vector<Candidate> points;
  std::vector<double> us;
  std::vector<const Candidate*> pointers;
};

TEST(Effects, AProductOfFactorsIsFoundFromSomeOfItsPoints) {
  const World world;
  Effects effects(world.pointers);
  EXPECT_EQ(effects.values(), 9u);
  std::vector<Effects::Try> tries;
  for (size_t i = 0; i < world.points.size(); i += 2) tries.push_back({i, world.us[i]});
  for (size_t i = 1; i < 12; i += 4) tries.push_back({i, world.us[i]});
  effects.fit(tries);
  size_t best = 0;
  for (size_t i = 0; i < world.points.size(); ++i) {
    EXPECT_NEAR(effects.us(i) / world.us[i], 1, 0.15) << world.points[i].text();
    if (effects.us(i) < effects.us(best)) best = i;
  }
  EXPECT_EQ(world.us[best], 100) << world.points[best].text();
}

TEST(Effects, WhatIsFarBehindCountsLittleAndWhatIsLessSureLess) {
  const World world;
  Effects effects(world.pointers);
  const std::vector<Effects::Try> calm = {{0, 100}, {1, 110}, {8, 90}, {9, 99}};
  effects.fit(calm);
  const double before = effects.us(8);
  std::vector<Effects::Try> tries = calm;
  tries.push_back({10, 10000});
  effects.fit(tries);
  EXPECT_NEAR(effects.us(8), before, 0.02 * before);
  tries.back() = {10, 60, 0.01};
  effects.fit(tries);
  const double doubted = effects.us(10);
  tries.back().weight = 1;
  effects.fit(tries);
  EXPECT_LT(effects.us(10), doubted);
}

TEST(Effects, OneTryIsEnoughToBeFitted) {
  const World world;
  Effects effects(world.pointers);
  const std::vector<Effects::Try> tries = {{3, 50}};
  effects.fit(tries);
  EXPECT_NEAR(effects.us(3), 50, 1);
}

}  // namespace
}  // namespace moetune

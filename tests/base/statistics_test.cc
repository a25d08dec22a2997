#include "base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"

namespace moetune {
namespace {

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{}), 0);
}

TEST(Statistics, QuartilesInterpolate) {
  const Quartiles five = quartiles(std::vector<double>{5, 4, 3, 2, 1});
  EXPECT_DOUBLE_EQ(five.q1, 2);
  EXPECT_DOUBLE_EQ(five.q3, 4);
  const Quartiles two = quartiles(std::vector<double>{10, 20});
  EXPECT_DOUBLE_EQ(two.q1, 12.5);
  EXPECT_DOUBLE_EQ(two.q3, 17.5);
}

// Values from the tables of Wilcoxon's test.
TEST(Statistics, SignedRankProbabilitiesAreTheTabulatedOnes) {
  EXPECT_NEAR(signed_rank_probability(6, 0), 1.0 / 64, 1e-12);
  EXPECT_NEAR(signed_rank_probability(10, 8), 25.0 / 1024, 1e-12);
  EXPECT_NEAR(signed_rank_probability(20, 52), 0.0242, 5e-5);
  EXPECT_DOUBLE_EQ(signed_rank_probability(5, -1), 0);
  EXPECT_DOUBLE_EQ(signed_rank_probability(5, 15), 1);
}

TEST(Statistics, SignedRankApproximationMeetsTheExactOne) {
  // 61 is the first count that is approximated. Its neighbour at the same distance from the mean,
  // in deviations, is not.
  for (double deviations : {-3.0, -2.576, -1.96, -1.0}) {
    const auto at = [deviations](int n) {
      const double spread = std::sqrt(n * (n + 1.0) * (2.0 * n + 1.0) / 24);
      return signed_rank_probability(n, static_cast<int>(n * (n + 1.0) / 4 + deviations * spread));
    };
    EXPECT_LE(at(61), 1.2 * at(60)) << deviations;
    EXPECT_GE(at(61), 0.97 * at(60)) << deviations;  // never much more certain than it may be
  }
}

TEST(Statistics, TooFewPairsGiveAnInfiniteInterval) {
  const std::vector<double> slow{2, 2, 2, 2, 2};
  const std::vector<double> fast{1, 1, 1, 1, 1};
  const Estimate estimate = paired_ratio(slow, fast, 0.95);
  EXPECT_DOUBLE_EQ(estimate.value, 2);
  EXPECT_EQ(estimate.low, 0);
  EXPECT_TRUE(std::isinf(estimate.high));
}

TEST(Statistics, SixPairsAreEnoughFor95Percent) {
  const std::vector<double> slow{2.0, 2.1, 1.9, 2.2, 2.05, 1.95};
  const std::vector<double> fast(6, 1.0);
  const Estimate estimate = paired_ratio(slow, fast, 0.95);
  EXPECT_DOUBLE_EQ(estimate.low, 1.9);
  EXPECT_DOUBLE_EQ(estimate.high, 2.2);
  EXPECT_NEAR(estimate.value, 2.03, 0.02);
}

TEST(Statistics, OneOutlierHardlyMovesTheRatio) {
  std::vector<double> slow(20, 1.1);
  std::vector<double> fast(20, 1.0);
  for (size_t i = 0; i < 20; ++i) slow[i] += 0.001 * static_cast<double>(i % 5);
  const double clean = paired_ratio(slow, fast, 0.95).value;
  slow[7] = 50;
  EXPECT_NEAR(paired_ratio(slow, fast, 0.95).value, clean, 0.001);
}

TEST(Statistics, NeighbourNoiseSeesNoiseAndNotDrift) {
  Random random(3);
  std::vector<double> values;
  for (int i = 0; i < 4000; ++i)
    values.push_back((1 + 0.0001 * i) * std::exp(0.03 * random.normal()));
  EXPECT_NEAR(neighbour_noise(values), 0.03, 0.002);
  values[100] = 70;
  EXPECT_NEAR(neighbour_noise(values), 0.03, 0.002);
  EXPECT_EQ(neighbour_noise(std::vector<double>{5}), 0);
}

// ---- Coverage: how often the interval holds the true ratio, with ABBA pairs of noisy times
// -------------------------------

struct Noise {
  std::string name;
  // The factor on the next time. Called once a sample, in order of time.
  std::function<double(Random&, double& state)> next;
};

double exponential(Random& random) { return -std::log(random.uniform()); }

std::vector<Noise> noises() {
  return {
      {"normal", [](Random& r, double&) { return std::exp(0.03 * r.normal()); }},
      {"skewed", [](Random& r, double&) { return 1 + 0.04 * exponential(r); }},
      {"heavy tails",
       [](Random& r, double&) { return std::exp(0.02 * r.normal() / std::sqrt(r.uniform())); }},
      {"outliers",
       [](Random& r, double&) {
         return std::exp(0.02 * r.normal()) * (r.uniform() < 0.1 ? 3.0 : 1.0);
       }},
      {"autocorrelated",
       [](Random& r, double& state) {
         state = 0.7 * state + r.normal();
         return std::exp(0.02 * state);
       }},
      {"drifting",
       [](Random& r, double& state) {
         state += 0.002;
         return (1 + state) * std::exp(0.02 * r.normal());
       }},
  };
}

double coverage(const Noise& noise, int rounds, double confidence) {
  constexpr double kTrueRatio = 1.07;
  const int trials = rounds >= 100 ? 500 : 1500;
  int held = 0;
  for (int trial = 0; trial < trials; ++trial) {
    Random random(static_cast<uint64_t>(trial), static_cast<uint64_t>(rounds));
    double state = 0;
    std::vector<double> slow, fast;
    for (int round = 0; round < rounds; ++round) {
      slow.push_back(kTrueRatio * noise.next(random, state));
      fast.push_back(noise.next(random, state));
      fast.push_back(noise.next(random, state));
      slow.push_back(kTrueRatio * noise.next(random, state));
    }
    const Estimate estimate = paired_ratio(slow, fast, confidence);
    held += estimate.low <= kTrueRatio && kTrueRatio <= estimate.high;
  }
  return static_cast<double>(held) / trials;
}

TEST(StatisticsSlow, IntervalsHoldTheTruthAsOftenAsTheySay) {
  for (const Noise& noise : noises()) {
    for (int rounds : {3, 5, 10, 30, 100}) {
      const double held = coverage(noise, rounds, 0.95);
      std::printf("%-15s %3d rounds: %.3f\n", noise.name.c_str(), rounds, held);
      // Neighbouring pairs of autocorrelated noise know a little of each other: 95 % becomes 93 %.
      EXPECT_GE(held, noise.name == "autocorrelated" ? 0.91 : 0.93)
          << noise.name << ", " << rounds << " rounds";
      // Not wider than need be either: six pairs cannot do better than 0.969.
      EXPECT_LE(held, rounds == 3 ? 0.99 : 0.985) << noise.name << ", " << rounds << " rounds";
    }
  }
}

}  // namespace
}  // namespace moetune

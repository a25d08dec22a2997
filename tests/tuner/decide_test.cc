#include "tuner/decide.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/random.h"

namespace moetune {
namespace {

using Noise = std::function<double(Random&, double& state)>;

double normal_3_percent(Random& random, double&) { return std::exp(0.03 * random.normal()); }

double heavy_tailed(Random& random, double&) {
  return std::exp(0.02 * random.normal()) *
         (random.uniform() < 0.05 ? 1 + 3 * random.uniform() : 1.0);
}

double autocorrelated(Random& random, double& state) {
  state = 0.7 * state + random.normal();
  return std::exp(0.015 * state);
}

double drifting(Random& random, double& state) {
  state += 0.0005;
  return (1 + state) * std::exp(0.02 * random.normal());
}

struct Rates {
  double reached = 0;  ///< Better, or no loss.
  double refused = 0;  ///< Not better, or loss.
  double rounds = 0;   ///< Mean.
  double held = 0;     ///< The final interval holds the true speedup.
};

Rates simulate(Goal goal, double true_speedup, const Noise& noise, int max_rounds,
               int trials = 2000) {
  MeasurementPolicy policy;
  policy.max_confirm_rounds = max_rounds;
  Rates rates;
  for (int trial = 0; trial < trials; ++trial) {
    Random random(static_cast<uint64_t>(trial), static_cast<uint64_t>(max_rounds));
    double state = 0;
    PairedTest test(goal, policy, max_rounds < 20);
    std::optional<Outcome> outcome;
    while (!outcome) {
      const double a1 = true_speedup * noise(random, state);
      const double b1 = noise(random, state);
      const double b2 = noise(random, state);
      const double a2 = true_speedup * noise(random, state);
      test.add_round(a1, b1, b2, a2);
      outcome = test.look();
    }
    rates.reached += *outcome == Outcome::kBetter || *outcome == Outcome::kNoLoss;
    rates.refused += *outcome == Outcome::kNotBetter || *outcome == Outcome::kLoss;
    rates.rounds += test.rounds();
    const Estimate speedup = test.speedup();
    rates.held += speedup.low <= true_speedup && true_speedup <= speedup.high;
  }
  for (double* rate : {&rates.reached, &rates.refused, &rates.rounds, &rates.held}) *rate /= trials;
  return rates;
}

struct NamedNoise {
  const char* name;
  Noise noise;
};

const std::vector<NamedNoise> kNoises = {{"normal", normal_3_percent},
                                         {"heavy tails", heavy_tailed},
                                         {"autocorrelated", autocorrelated},
                                         {"drifting", drifting}};

TEST(DecideSlow, ACandidateThatIsNoFasterHardlyEverReplacesTheDefault) {
  for (const NamedNoise& noise : kNoises) {
    for (int max_rounds : {5, 20, 200}) {
      const Rates equal = simulate(Goal::kGain, 1.0, noise.noise, max_rounds, 1000);
      const Rates worse = simulate(Goal::kGain, 0.98, noise.noise, max_rounds, 300);
      std::printf(
          "%-15s at most %3d rounds: gain 0: %.3f replaced (mean %.0f rounds, interval held %.3f); "
          "loss 2 %%: %.3f\n",
          noise.name, max_rounds, equal.reached, equal.rounds, equal.held, worse.reached);
      EXPECT_LE(equal.reached, 0.05) << noise.name;
      EXPECT_LE(worse.reached, 0.01) << noise.name;
      EXPECT_GE(equal.held, 0.93) << noise.name;
    }
  }
}

TEST(DecideSlow, RealGainsAreFound) {
  for (const NamedNoise& noise : kNoises) {
    for (double gain : {1.02, 1.05, 1.1, 1.3}) {
      const Rates rates = simulate(Goal::kGain, gain, noise.noise, 200, 200);
      std::printf("%-15s gain %.0f %%: %.3f found, mean %.0f rounds\n", noise.name,
                  100 * (gain - 1), rates.reached, rates.rounds);
      EXPECT_GE(rates.reached, gain >= 1.05 ? 0.95 : 0.6) << noise.name << gain;
    }
  }
}

TEST(DecideSlow, AVetoLetsGainsPassAndStopsLosses) {
  for (const NamedNoise& noise : kNoises) {
    const Rates gain = simulate(Goal::kNoLoss, 1.05, noise.noise, 200, 1000);
    const Rates equal = simulate(Goal::kNoLoss, 1.0, noise.noise, 200, 1000);
    const Rates loss = simulate(Goal::kNoLoss, 0.97, noise.noise, 200, 1000);
    std::printf(
        "%-15s passes: gain 5 %% %.3f (%.1f rounds), equal %.3f, loss 3 %% %.3f (%.1f rounds)\n",
        noise.name, gain.reached, gain.rounds, equal.reached, loss.reached, loss.rounds);
    EXPECT_GE(gain.reached, 0.98) << noise.name;
    EXPECT_LE(loss.reached, 0.05) << noise.name;
  }
}

TEST(PairedTest, SaysNothingBeforeTheFirstLook) {
  const MeasurementPolicy policy;
  for (bool is_dear : {false, true}) {
    PairedTest test(Goal::kGain, policy, is_dear);
    const int first = is_dear ? policy.least_confirm_rounds : policy.min_confirm_rounds;
    for (int round = 1; round < first; ++round) {
      test.add_round(2, 1, 1, 2);
      EXPECT_FALSE(test.look());
      EXPECT_EQ(test.last_look(), Outcome::kUnresolved);
    }
    test.add_round(2, 1, 1, 2);
    EXPECT_EQ(test.look(), Outcome::kBetter);
  }
}

TEST(PairedTest, EarlyOnAllPairsMustAgree) {
  const MeasurementPolicy policy;
  PairedTest test(Goal::kGain, policy, true);
  test.add_round(2, 1, 1, 2);
  test.add_round(2, 1, 1, 2);
  test.add_round(2, 1, 1, 0.99);
  EXPECT_FALSE(test.look());
}

TEST(PairedTest, AGainUnderTheLeastOneIsNoGain) {
  MeasurementPolicy policy;
  policy.max_confirm_rounds = 50;
  PairedTest test(Goal::kGain, policy);
  std::optional<Outcome> outcome;
  while (!outcome) {
    test.add_round(1.005, 1, 1, 1.005);
    outcome = test.look();
  }
  EXPECT_EQ(*outcome, Outcome::kNotBetter);
}

TEST(PairedTest, DriftWithinRoundsCancels) {
  const MeasurementPolicy policy;
  PairedTest test(Goal::kGain, policy);
  double factor = 1;
  for (int round = 0; round < 20; ++round) {
    const double a1 = factor *= 1.004;
    const double b1 = factor *= 1.004;
    const double b2 = factor *= 1.004;
    const double a2 = factor *= 1.004;
    test.add_round(a1, b1, b2, a2);
  }
  EXPECT_NEAR(test.speedup().value, 1, 1e-9);
}

}  // namespace
}  // namespace moetune

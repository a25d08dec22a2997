// How good the tuner's choices are in a world whose truth is known: a mixture-of-experts layer of
// 128 experts on a small CPU, two stages of 60 tactics each, smooth costs with some roughness,
// noise as on a shared machine, and a minute's budget, of which one call at 1024 tokens takes 0.7
// s.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "base/hash.h"
#include "tuner/fake_world.h"

namespace moetune {
namespace {

using namespace testing;  // NOLINT: the fakes

const std::vector<int64_t> kBuckets = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
constexpr int kExperts = 128;
constexpr int kSubsetExperts = 36;

Space stage_space() {
  return Space({{"rows", {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{6}, int64_t{8}}, ""},
                {"panel", {int64_t{16}, int64_t{32}, int64_t{64}, int64_t{128}}, ""},
                {"prefetch", {int64_t{0}, int64_t{2}, int64_t{8}}, ""}});
}

Tactic tactic(int64_t rows, int64_t panel, int64_t prefetch) {
  return Tactic({{"rows", rows}, {"panel", panel}, {"prefetch", prefetch}});
}

// A fixed pseudo-random number in [-1, 1].
double roughness(uint64_t seed, const std::string& what) {
  return 2.0 * static_cast<double>(Hash64().add(seed).add(what).value() >> 11) * 0x1p-53 - 1.0;
}

// One machine: how each stage's time depends on the tactic and the size.
class Landscape {
 public:
  explicit Landscape(uint64_t seed) : seed_(seed) {}

  double us(const Candidate& c, int64_t tokens, int stage, Scale scale) const {
    const double touched =
        kExperts * (1 - std::pow(1 - 8.0 / kExperts, static_cast<double>(tokens)));
    double experts = touched;
    double computing = 683.0 * static_cast<double>(tokens);
    if (scale == Scale::kSubset) {
      experts = std::min<double>(touched, kSubsetExperts);
      if (tokens > 4) computing *= static_cast<double>(kSubsetExperts) / kExperts;
    }
    const double ideal = 66.0 * experts + computing;
    const double first = 0.65 * ideal * slowness(c, 0, tokens, scale);
    const double second = 0.35 * ideal * slowness(c, 1, tokens, scale);
    return stage == 0 ? first : stage == 1 ? second : first + second;
  }

 private:
  double slowness(const Candidate& c, size_t stage, int64_t tokens, Scale scale) const {
    const Tactic& t = c.stages[stage].tactic;
    const double size = std::log2(static_cast<double>(tokens));
    const double shift = 0.7 * roughness(seed_, "shift" + std::to_string(stage));
    const double rows =
        std::log2(static_cast<double>(t.number("rows"))) - std::min(3.0, 0.35 * size + shift);
    const double panel =
        std::log2(static_cast<double>(t.number("panel"))) - (4.5 + 0.2 * size - shift);
    const double prefetch = static_cast<double>(t.number("prefetch")) - (6 - 0.5 * size);
    const std::string text = c.stages[stage].name + t.text();
    double slow = 1 + 0.10 * rows * rows + 0.05 * panel * panel + 0.004 * prefetch * prefetch;
    slow *= 1 + 0.02 * roughness(seed_, text);
    if (scale == Scale::kSubset) slow *= 1 + 0.015 * roughness(seed_ + 1, text);
    return slow;
  }

  uint64_t seed_;
};

Candidate heuristic(int64_t tokens) {
  const Tactic t = tokens < 16    ? tactic(1, 32, 8)
                   : tokens < 128 ? tactic(4, 32, 2)
                                  : tactic(4, 64, 2);
  return {"fake", 1, "separate", {{"gemm1", t}, {"gemm2", t}}};
}

double best_us(const Landscape& land, int64_t tokens) {
  double total = 0;
  for (int stage : {0, 1}) {
    double best = std::numeric_limits<double>::infinity();
    for (const Tactic& t : stage_space().points(tokens)) {
      Candidate c = heuristic(tokens);
      c.stages[static_cast<size_t>(stage)].tactic = t;
      best = std::min(best, land.us(c, tokens, stage, Scale::kFull));
    }
    total += best;
  }
  return total;
}

struct Outcomes {
  std::vector<double> regret;  ///< Of each bucket of each run, after tuning.
  std::vector<double> default_regret;
  double worst_against_default = 0;  ///< Largest loss at any size in 1..1024.
  double seconds = 0;
  int tuned = 0;
  std::array<double, 11> by_bucket = {};
};

Outcomes tune_many(int runs, double budget_s, double noise, double outliers) {
  Outcomes outcomes;
  for (int run = 0; run < runs; ++run) {
    const Landscape land(static_cast<uint64_t>(run));
    FakeRunner runner("fake", {{"separate", {{"gemm1", stage_space()}, {"gemm2", stage_space()}}}},
                      heuristic);
    FakeWorld world({&runner}, kBuckets,
                    [&](const Candidate& c, int64_t tokens, int stage, Scale scale) {
                      return land.us(c, tokens, stage, scale);
                    });
    world.random = Random(static_cast<uint64_t>(run), 99);
    world.noise = [=](Random& r, double now) {
      const double drift = 1 + 0.02 * std::sin(now / 3);
      return drift * std::exp(noise * r.normal()) *
             (r.uniform() < outliers ? 1 + r.uniform() : 1.0);
    };
    world.full_chunks = kExperts;
    world.subset_chunks = kSubsetExperts;
    world.subset_factor = 0.28;
    world.load_s_per_chunk = 0.01;
    world.select_s = 0.03;
    world.check_s = 0.003;
    world.veto_workloads = {"zipf:1.2"};
    world.budget_s = budget_s;
    const auto report = world.tune();
    EXPECT_TRUE(report.ok());
    EXPECT_LE(report->seconds, budget_s + 0.8);
    outcomes.seconds += report->seconds / runs;
    for (const Decision& decision : report->plan.decisions) {
      for (int64_t t = decision.from; t <= decision.to; ++t) {
        const double fallback = land.us(heuristic(t), t, -1, Scale::kFull);
        const double mine =
            decision.is_default ? fallback : land.us(decision.candidate, t, -1, Scale::kFull);
        outcomes.worst_against_default =
            std::max(outcomes.worst_against_default, mine / fallback - 1);
        const auto bucket = std::find(kBuckets.begin(), kBuckets.end(), t);
        if (bucket == kBuckets.end()) continue;
        const double best = best_us(land, t);
        outcomes.regret.push_back(mine / best - 1);
        outcomes.default_regret.push_back(fallback / best - 1);
        outcomes.by_bucket[static_cast<size_t>(bucket - kBuckets.begin())] +=
            (mine / best - 1) / runs;
        outcomes.tuned += !decision.is_default;
      }
    }
  }
  return outcomes;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void print(const char* what, const Outcomes& o) {
  std::printf(
      "%-28s regret %.1f %% (default %.1f %%), worst against default %+.1f %%, %d of %zu tuned, "
      "%.0f s; by bucket:",
      what, 100 * mean(o.regret), 100 * mean(o.default_regret), 100 * o.worst_against_default,
      o.tuned, o.regret.size(), o.seconds);
  for (double regret : o.by_bucket) std::printf(" %.1f", 100 * regret);
  std::printf("\n");
}

TEST(TuneRegretSlow, AMinuteComesCloseToTheBestAndNeverLosesToTheDefault) {
  struct Setting {
    const char* what;
    double budget_s;
    double noise;
    double outliers;
    double most_regret;
  };
  for (const Setting& s : {Setting{"60 s, noise 2 %", 60, 0.02, 0.02, 0.04},
                           Setting{"60 s, noise 5 %", 60, 0.05, 0.05, 0.06},
                           Setting{"20 s, noise 2 %", 20, 0.02, 0.02, 0.10},
                           Setting{"5 s, noise 2 %", 5, 0.02, 0.02, 1.0},
                           Setting{"300 s, noise 2 %", 300, 0.02, 0.02, 0.02}}) {
    const Outcomes outcomes = tune_many(12, s.budget_s, s.noise, s.outliers);
    print(s.what, outcomes);
    EXPECT_LE(mean(outcomes.regret), s.most_regret) << s.what;
    EXPECT_LE(outcomes.worst_against_default, 0.02) << s.what;
  }
}

}  // namespace
}  // namespace moetune

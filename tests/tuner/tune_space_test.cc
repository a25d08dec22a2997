// Tuning over more than one list of kernels: layouts that compete as whole plans, several schemes,
// stages that are searched one by one or belong together, and the exact check of who may win.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tuner/fake_world.h"

namespace moetune {
namespace {

using namespace testing;  // NOLINT: the fakes
using ::testing::HasSubstr;

const Decision& at(const Plan& plan, int64_t tokens) {
  const auto found =
      std::find_if(plan.decisions.begin(), plan.decisions.end(),
                   [tokens](const Decision& d) { return d.from <= tokens && tokens <= d.to; });
  if (found == plan.decisions.end()) throw std::out_of_range("no decision");
  return *found;
}

TuneReport tuned(FakeWorld& world, const TuneRequest& request) {
  world.noise = [](Random& r, double) { return std::exp(0.02 * r.normal()); };
  auto report = AutoTuner(request.device).tune(request);
  EXPECT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->plan.check_coverage().ok());
  return std::move(report).value();
}
TuneReport tuned(FakeWorld& world) { return tuned(world, world.request()); }

// ---- Layouts

// Weights that have to be packed, by rows (the default's layout) or in tiles.
struct LayoutWorld {
  explicit LayoutWorld(std::function<double(const std::string& kind, int64_t tokens)> us) {
    runner = runner_with_kinds({"rows", "rows_other", "tiles", "tiles_other"});
    runner->layout_of = [](const Candidate& c) {
      return kind_of(c).starts_with("rows") ? "by_rows" : "in_tiles";
    };
    runner->all_layouts = {"by_rows", "in_tiles"};
    world = std::make_unique<FakeWorld>(
        std::vector<TunableRunner*>{runner.get()}, std::vector<int64_t>{1, 16, 256},
        [us = std::move(us)](const Candidate& c, int64_t tokens, int, Scale) {
          return us(kind_of(c), tokens);
        });
    world->full_chunks = 64;
    world->subset_chunks = 16;
  }
  std::unique_ptr<FakeRunner> runner;
  std::unique_ptr<FakeWorld> world;
};

void expect_one_layout(const LayoutWorld& layouts, const Plan& plan) {
  for (const Decision& decision : plan.decisions)
    EXPECT_EQ(layouts.runner->layout(decision.candidate), plan.layout) << decision.tokens;
}

TEST(TuneLayouts, AnotherLayoutWinsWhereItsWholePlanIsFaster) {
  LayoutWorld layouts([](const std::string& kind, int64_t tokens) {
    const double us = 500.0 + static_cast<double>(tokens);
    return kind == "tiles" ? 0.6 * us : us;
  });
  const Plan plan = tuned(*layouts.world).plan;
  EXPECT_EQ(plan.layout, "in_tiles");
  expect_one_layout(layouts, plan);
  for (const int64_t tokens : {1, 16, 256}) EXPECT_EQ(kind_of(at(plan, tokens).candidate), "tiles");
}

TEST(TuneLayouts, AGainAtOneSizeDoesNotPayForALossAtTheOthers) {
  LayoutWorld layouts([](const std::string& kind, int64_t tokens) {
    if (kind.starts_with("rows")) return kind == "rows_other" ? 900.0 : 1000.0;
    return tokens == 16 ? 700.0 : 1500.0;
  });
  const Plan plan = tuned(*layouts.world).plan;
  EXPECT_EQ(plan.layout, "by_rows");
  expect_one_layout(layouts, plan);
  EXPECT_EQ(kind_of(at(plan, 16).candidate), "rows_other");
}

TEST(TuneLayouts, AWrongKernelDoesNotCarryItsLayout) {
  LayoutWorld layouts(
      [](const std::string& kind, int64_t) { return kind.starts_with("tiles") ? 400.0 : 1000.0; });
  layouts.world->wrong = [](const Candidate& c, const Case&, int) {
    return kind_of(c).starts_with("tiles") ? "row 0: wrong" : "";
  };
  const TuneReport report = tuned(*layouts.world);
  EXPECT_EQ(report.plan.layout, "by_rows");
  EXPECT_FALSE(report.rejected.empty());
}

// ---- Schemes and stages

Scheme scheme(const std::string& name, const std::vector<std::string>& stages) {
  Scheme made{name, {}};
  for (const std::string& stage : stages)
    made.stages.push_back(
        {stage, Space({{"tile", {16, 32, 64, 128}, ""}, {"depth", {1, 2, 3}, ""}})});
  return made;
}

Candidate of_tiles(const std::string& scheme, const std::vector<std::string>& stages,
                   int64_t tile) {
  Candidate candidate{"fake", 1, scheme, {}};
  for (const std::string& stage : stages)
    candidate.stages.push_back({stage, Tactic({{"tile", tile}, {"depth", 1}})});
  return candidate;
}

int64_t tile(const Candidate& candidate, size_t stage) {
  return candidate.stages.at(stage).tactic.number("tile");
}
int64_t depth(const Candidate& candidate, size_t stage) {
  return candidate.stages.at(stage).tactic.number("depth");
}

TEST(TuneSchemes, EachSizeTakesTheSchemeThatIsFasterThere) {
  FakeRunner runner("fake", {scheme("separate", {"gemm1", "gemm2"}), scheme("fused", {"both"})},
                    [](int64_t) {
                      return of_tiles("separate", {"gemm1", "gemm2"}, 16);
                    });
  FakeWorld world({&runner}, {1, 512}, [](const Candidate& c, int64_t tokens, int stage, Scale) {
    const double t = static_cast<double>(tokens);
    if (c.scheme == "fused") return 300 + 4 * t + (tile(c, 0) == 32 ? 0 : 50);
    return (stage < 0 ? 2 : 1) * (250 + t + (tile(c, 0) == 16 ? 0 : 20));
  });
  const Plan plan = tuned(world).plan;
  EXPECT_EQ(at(plan, 1).candidate.scheme, "fused");
  EXPECT_EQ(tile(at(plan, 1).candidate, 0), 32);
  EXPECT_EQ(at(plan, 512).candidate.scheme, "separate");
}

TEST(TuneStages, AreSearchedOneByOneAndCombined) {
  FakeRunner runner("fake", {scheme("separate", {"gemm1", "gemm2"})}, [](int64_t) {
    return of_tiles("separate", {"gemm1", "gemm2"}, 16);
  });
  const auto stage_us = [](const Candidate& c, size_t stage) {
    const int64_t best = stage == 0 ? 64 : 32;
    const double off = std::abs(std::log2(static_cast<double>(tile(c, stage))) -
                                std::log2(static_cast<double>(best)));
    return 400 * (1 + 0.3 * off) * (depth(c, stage) == 2 ? 1 : 1.2);
  };
  FakeWorld world({&runner}, {8}, [&](const Candidate& c, int64_t, int stage, Scale) {
    if (stage >= 0) return stage_us(c, static_cast<size_t>(stage));
    return stage_us(c, 0) + stage_us(c, 1);
  });
  const Candidate chosen = at(tuned(world).plan, 8).candidate;
  EXPECT_EQ(chosen.text(), "fake/separate gemm1{tile=64,depth=2} gemm2{tile=32,depth=2}");
}

TEST(TuneStages, ThatMustAgreeMoveTogether) {
  FakeRunner runner("fake", {scheme("joined", {"gemm1", "gemm2"})}, [](int64_t) {
    return of_tiles("joined", {"gemm1", "gemm2"}, 16);
  });
  runner.exclude = [](const Candidate& c, int64_t) {
    return tile(c, 0) != tile(c, 1) ? "both stages take one tile" : "";
  };
  FakeWorld world({&runner}, {8}, [](const Candidate& c, int64_t, int stage, Scale) {
    const auto us = [&](size_t s) {
      return (tile(c, s) == 128 ? 300.0 : 600.0) * (depth(c, s) == 3 ? 1 : 1.1);
    };
    return stage >= 0 ? us(static_cast<size_t>(stage)) : us(0) + us(1);
  });
  const TuneReport report = tuned(world);
  const Candidate& chosen = at(report.plan, 8).candidate;
  EXPECT_EQ(tile(chosen, 0), 128);
  EXPECT_EQ(tile(chosen, 1), 128);
  EXPECT_TRUE(std::none_of(world.sampled.begin(), world.sampled.end(), [](const std::string& text) {
    return text.find("gemm1{tile=16") != std::string::npos &&
           text.find("gemm2{tile=128") != std::string::npos;
  }));
}

// ---- The exact check

TEST(TuneExact, WhatIsRightOnlyNearlyDoesNotWin) {
  const auto runner = runner_with_kinds({"default", "sloppy", "good"});
  const auto us = [](const Candidate& c, int64_t, int, Scale) {
    return kind_of(c) == "default" ? 1000.0 : kind_of(c) == "good" ? 700.0 : 400.0;
  };
  FakeWorld world({runner.get()}, {1, 8}, us);
  FakeWorld exact({runner.get()}, {1, 8}, us);
  exact.wrong = [](const Candidate& c, const Case&, int) {
    return kind_of(c) == "sloppy" ? "output is 3 at token 0, column 0, not 2" : "";
  };
  TuneRequest request = world.request();
  request.exact_bench = &exact.bench;
  request.exact_executor = &exact.executor;
  const TuneReport report = tuned(world, request);
  for (const int64_t tokens : {1, 8}) EXPECT_EQ(kind_of(at(report.plan, tokens).candidate), "good");
  ASSERT_FALSE(report.rejected.empty());
  for (const Rejection& rejection : report.rejected) {
    EXPECT_EQ(kind_of(rejection.candidate), "sloppy");
    EXPECT_EQ(rejection.error.code, ErrorCode::kWrongResult);
    EXPECT_THAT(rejection.error.message, HasSubstr("exact check: output is 3"));
  }
}

TEST(TuneExact, WhereTheExactProblemCannotBeSetUpTheDefaultStays) {
  const auto runner = runner_with_kinds({"default", "good"});
  const auto us = [](const Candidate& c, int64_t, int, Scale) {
    return kind_of(c) == "default" ? 1000.0 : 700.0;
  };
  FakeWorld world({runner.get()}, {8}, us);
  FakeWorld exact({runner.get()}, {8}, us);
  exact.fault = [](const Candidate&, const Case&) -> Status {
    return Error{ErrorCode::kOutOfMemory, "no room for the exact problem"};
  };
  TuneRequest request = world.request();
  request.exact_bench = &exact.bench;
  request.exact_executor = &exact.executor;
  const TuneReport report = tuned(world, request);
  EXPECT_TRUE(at(report.plan, 8).is_default);
}

TEST(TuneExact, ARunnerWithoutAnExactCheckCanWinAndIsNotAskedForOne) {
  const auto runner = runner_with_kinds({"default", "good"});
  runner->exactly_checkable = false;
  const auto us = [](const Candidate& c, int64_t, int, Scale) {
    return kind_of(c) == "default" ? 1000.0 : 700.0;
  };
  FakeWorld world({runner.get()}, {8}, us);
  FakeWorld exact({runner.get()}, {8}, us);
  TuneRequest request = world.request();
  request.exact_bench = &exact.bench;
  request.exact_executor = &exact.executor;
  const TuneReport report = tuned(world, request);
  EXPECT_EQ(kind_of(at(report.plan, 8).candidate), "good");
  EXPECT_TRUE(exact.times_checked.empty());
}

// ---- Suggestions

std::vector<std::string> many_kinds() {
  std::vector<std::string> kinds{"default"};
  for (int i = 0; i < 400; ++i) kinds.push_back("k" + std::to_string(i));
  return kinds;
}

// One point in four hundred is good, and nothing near it says so.
double needle_us(const Candidate& c, int64_t, int, Scale) {
  return kind_of(c) == "k377" ? 500.0 : 1000.0;
}

TEST(TuneSuggestions, AreTriedFirstAndCanWin) {
  const auto runner = runner_with_kinds(many_kinds());
  FakeWorld world({runner.get()}, {8}, needle_us);
  TuneRequest request = world.request();
  request.suggestions[8] = {kind(*runner, "k377")};
  const TuneReport report = tuned(world, request);
  EXPECT_EQ(kind_of(at(report.plan, 8).candidate), "k377");
  const auto first =
      std::find_if(world.sampled.begin(), world.sampled.end(),
                   [](const std::string& text) { return text.find("k377") != std::string::npos; });
  EXPECT_LT(first - world.sampled.begin(), 10) << "of " << world.sampled.size();
}

TEST(TuneSuggestions, ThatDoNotFitAreLeftOut) {
  const auto runner = runner_with_kinds({"default", "good"});
  FakeWorld world({runner.get()}, {8}, needle_us);
  TuneRequest request = world.request();
  Candidate unknown = kind(*runner, "good");
  unknown.stages[0].tactic.set("kind", std::string("of tomorrow"));
  request.suggestions[8] = {unknown};
  const TuneReport report = tuned(world, request);
  EXPECT_TRUE(at(report.plan, 8).is_default);
  for (const std::string& text : world.sampled) EXPECT_EQ(text.find("tomorrow"), std::string::npos);
}

}  // namespace
}  // namespace moetune

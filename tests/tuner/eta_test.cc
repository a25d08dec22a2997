// From the first quarter of a run on, the end that progress foretells is right to 30 % (case 28).
#include <gtest/gtest.h>

#include <cmath>

#include "tuner/fake_world.h"

namespace moetune {
namespace {

using namespace testing;  // NOLINT: the fakes

class Eta : public ::testing::Test {
 protected:
  // `kinds` candidates beside the default; a call takes `base_us`, and `per_token_us` more for each
  // token.
  void make_world(int kinds, std::vector<int64_t> buckets, double base_us, double per_token_us,
                  double noise) {
    std::vector<std::string> names{"default"};
    for (int i = 0; i < kinds; ++i) names.push_back(std::string("k").append(std::to_string(i)));
    runner_ = runner_with_kinds(names);
    world_ = std::make_unique<FakeWorld>(
        std::vector<TunableRunner*>{runner_.get()}, std::move(buckets),
        [=](const Candidate& c, int64_t tokens, int, Scale) {
          const std::string kind = kind_of(c);
          const int number = kind == "default" ? 8 : std::atoi(kind.c_str() + 1) * 37 % 61;
          return (base_us + per_token_us * static_cast<double>(tokens)) * (1 + 0.03 * number);
        });
    world_->noise = [noise](Random& random, double) { return std::exp(noise * random.normal()); };
    world_->veto_workloads = {"zipf:1.2"};
    world_->work_bytes_per_token = per_token_us > 0 ? 1000 : 0;
  }

  // The run's seconds.
  double expect_a_right_eta(double budget_s) {
    world_->budget_s = budget_s;
    world_->progress.clear();
    const auto report = world_->tune();
    EXPECT_TRUE(report.ok());
    const double total = report->seconds;
    int seen = 0;
    for (const TuneProgress& p : world_->progress) {
      EXPECT_GE(p.eta_s, 0);
      EXPECT_LE(p.elapsed_s + p.eta_s, std::max(budget_s, p.elapsed_s) + 1e-9);
      if (p.elapsed_s < total / 4 || p.phase == "done") continue;
      ++seen;
      EXPECT_NEAR(p.elapsed_s + p.eta_s, total, 0.3 * total)
          << p.phase << " at " << p.tokens << " after " << p.elapsed_s << " s of " << total;
    }
    EXPECT_GT(seen, 0);
    return total;
  }

  std::unique_ptr<FakeRunner> runner_;
  std::unique_ptr<FakeWorld> world_;
};

TEST_F(Eta, OfARunThatTakesItsWholeBudget) {
  make_world(2000, {1, 4, 16, 64, 256, 1024}, 2000, 20, 0.1);
  EXPECT_GT(expect_a_right_eta(60), 40);
}

TEST_F(Eta, OfARunThatConvergesEarly) {
  make_world(10, {1, 2, 4, 8, 16, 32, 64, 128}, 3000, 0, 0.02);
  EXPECT_LT(expect_a_right_eta(600), 300);
}

TEST_F(Eta, OfARunThatConvergesEarlyOverSizesThatGrowDear) {
  make_world(10, {1, 4, 16, 64, 256, 1024}, 500, 40, 0.02);
  EXPECT_LT(expect_a_right_eta(600), 300);
}

TEST_F(Eta, OfOneBucket) {
  make_world(40, {16}, 3000, 0, 0.02);
  EXPECT_LT(expect_a_right_eta(20), 18);
}

TEST_F(Eta, OfARunThatTakesUpAnInterruptedOne) {
  make_world(60, {1, 4, 16, 64, 256, 1024}, 2000, 20, 0.02);
  const double start = world_->now_s;
  world_->on_sample = [&] {
    if (world_->now_s - start > 3) world_->stop.request_stop();
  };
  world_->budget_s = 60;
  ASSERT_TRUE(world_->tune()->interrupted);
  world_->on_sample = nullptr;
  world_->stop = std::stop_source();
  expect_a_right_eta(60);
}

TEST_F(Eta, OfARunThatKnowsEverythingIsNothing) {
  make_world(10, {1, 16, 64}, 3000, 0, 0.02);
  world_->budget_s = 600;
  ASSERT_TRUE(world_->tune().ok());
  world_->progress.clear();
  const auto report = world_->tune();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->measurements, 0);
  for (const TuneProgress& p : world_->progress) EXPECT_LT(p.eta_s, 1) << p.phase;
}

}  // namespace
}  // namespace moetune

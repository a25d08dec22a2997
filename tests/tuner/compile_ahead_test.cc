// What compilers do while the tuner is busy with something else.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tuner/fake_world.h"
#include "tuner/tune.h"

namespace moetune {
namespace {

using testing::FakeWorld;

// One compiler that takes a second for each candidate, in the order in which it is told of them;
// packing takes five.
class CompileAheadTest : public ::testing::Test {
 protected:
  CompileAheadTest() {
    world_.full_chunks = world_.subset_chunks = 500;
    world_.on_prefetch = [this](std::span<const Candidate> candidates, bool is_loaded) {
      if (!is_loaded && told_before_packing_.empty()) {
        for (const Candidate& candidate : candidates)
          told_before_packing_.push_back(testing::kind_of(candidate));
      }
      for (const Candidate& candidate : candidates) begin(candidate);
      return 0;
    };
    world_.fault = [this](const Candidate& candidate, const Case&) -> Status {
      begin(candidate);
      const double ready_s = ready_s_.at(candidate.text());
      waited_s_ += std::max(0.0, ready_s - world_.now_s);
      world_.now_s = std::max(world_.now_s, ready_s);
      if (world_.samples_taken == 0) waited_at_first_s_ = waited_s_;
      return {};
    };
  }

  void begin(const Candidate& candidate) {
    if (ready_s_.contains(candidate.text())) return;
    idle_from_s_ = std::max(idle_from_s_, world_.now_s) + 1;
    ready_s_[candidate.text()] = idle_from_s_;
  }

  std::unique_ptr<testing::FakeRunner> runner_ =
      testing::runner_with_kinds({"default", "a", "b", "c", "d"});
  FakeWorld world_{{runner_.get()}, {4, 64}, [](const Candidate& c, int64_t, int, Scale) {
                     return testing::kind_of(c) == "c" ? 500.0 : 1000.0;
                   }};
  std::map<std::string, double> ready_s_;
  double idle_from_s_ = 0;
  double waited_s_ = 0;
  double waited_at_first_s_ = -1;
  std::vector<std::string> told_before_packing_;
};

TEST_F(CompileAheadTest, CompilersWorkWhileWeightsArePackedOnWhatIsTriedFirst) {
  const auto report = world_.tune();
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(told_before_packing_.size(), 5u);
  EXPECT_EQ(told_before_packing_[0], "default") << "it is the first to run";
  EXPECT_EQ(waited_at_first_s_, 0) << "the default was ready when the weights were";
  EXPECT_LT(waited_s_, 0.1) << "and so was everything else";
  EXPECT_EQ(testing::kind_of(report->plan.decisions.back().candidate), "c");
}

// Eight compilers that take two seconds a candidate, and 300 candidates.
class SlowCompilers : public ::testing::Test {
 protected:
  static constexpr int kCompilers = 8;
  static constexpr double kSeconds = 2;

  SlowCompilers() {
    world_.on_prefetch = [this](std::span<const Candidate> candidates, bool) {
      advance();
      told_.clear();
      for (const Candidate& candidate : candidates) told_.push_back(candidate.text());
      told_s_ = world_.now_s;
      advance();
      if (!tells_) return 0;
      const auto first =
          std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
            const auto found = ready_s_.find(c.text());
            return found != ready_s_.end() && found->second <= world_.now_s;
          });
      return first == candidates.end() ? -1 : static_cast<int>(first - candidates.begin());
    };
    world_.fault = [this](const Candidate& candidate, const Case&) -> Status {
      advance();
      const auto [found, is_new] = ready_s_.try_emplace(candidate.text(), world_.now_s + kSeconds);
      world_.compile_s = std::max(0.0, found->second - world_.now_s);
      waited_s_ += world_.compile_s;
      world_.now_s += world_.compile_s;
      tried_.insert(candidate.text());
      return {};
    };
    world_.check_s = 0.2;
    world_.budget_s = 60;
  }

  static std::vector<std::string> kinds() {
    std::vector<std::string> names;
    for (int i = 0; i < 300; ++i) names.push_back("k" + std::to_string(i));
    return names;
  }

  // Each compiler that is free takes the first that it was told of.
  void advance() {
    while (!told_.empty()) {
      double& free_s = *std::min_element(free_s_.begin(), free_s_.end());
      if (free_s > world_.now_s) return;
      const std::string next = told_.front();
      told_.erase(told_.begin());
      if (ready_s_.contains(next)) continue;
      free_s = std::max(free_s, told_s_) + kSeconds;
      ready_s_[next] = free_s;
    }
  }

  std::unique_ptr<testing::FakeRunner> runner_ = testing::runner_with_kinds(kinds());
  FakeWorld world_{{runner_.get()}, {4, 64}, [](const Candidate& c, int64_t, int, Scale) {
                     return testing::kind_of(c) == "k211" ? 500.0 : 1000.0;
                   }};
  std::vector<double> free_s_ = std::vector<double>(kCompilers);
  std::vector<std::string> told_;
  bool tells_ = false;  // Which candidates are compiled.
  double told_s_ = 0;
  std::map<std::string, double> ready_s_;
  std::set<std::string> tried_;
  double waited_s_ = 0;
};

TEST_F(SlowCompilers, AreToldEarlyEnoughThatTriesHardlyWait) {
  world_.policy.explore_share = 1;
  const auto report = world_.tune();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_LT(waited_s_, 0.25 * report->seconds);
  EXPECT_GT(tried_.size(), 60u);
  EXPECT_LT(ready_s_.size(), 2 * tried_.size()) << "most of what is compiled is tried";
}

// Where it is known which candidates are compiled, no compiler is waited for while there is one.
TEST_F(SlowCompilers, ArePassedByWhatIsCompiledAlready) {
  tells_ = true;
  world_.policy.explore_share = 1;
  world_.check_s = 0.5;  // Tries are slower than all compilers together.
  const auto report = world_.tune();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_LT(waited_s_, 2 * kSeconds + 0.5) << "for the first, and for none after it";
}

TEST_F(CompileAheadTest, NothingIsCompiledWhereNothingIsMeasured) {
  world_.budget_s = 0;
  ASSERT_TRUE(world_.tune().ok());
  EXPECT_TRUE(ready_s_.empty());
}

}  // namespace
}  // namespace moetune

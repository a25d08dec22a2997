#include "cli/every_tactic.h"

#include <gtest/gtest.h>

#include <set>

#include "tuner/sample_runner.h"

namespace moetune::cli {
namespace {

class EveryTacticTest : public ::testing::Test {
 protected:
  std::vector<int64_t> tiles_at(int64_t tokens, const EveryTactic& which) {
    TunableRunner* const runners[] = {&runner_};
    const Buckets sizes = Buckets::from({8, 64}).value();
    const auto lists = every_tactic(runners, sizes, which);
    EXPECT_EQ(lists.size(), 2u);
    std::set<int64_t> tiles;
    for (const Candidate& candidate : lists.at(tokens == 8 ? 0 : 1))
      tiles.insert(candidate.stages.at(0).tactic.number("tile"));
    return {tiles.begin(), tiles.end()};
  }

  SampleRunner runner_;
};

TEST_F(EveryTacticTest, IsTheWholeSpaceAtEachSize) {
  const std::vector<int64_t> all{0, 1, 2, 4, 8};
  for (const int64_t tokens : {8, 64}) EXPECT_EQ(tiles_at(tokens, {.limit = 100}), all);
  EXPECT_EQ(tiles_at(8, {.limit = 2, .seed = 3}).size(), 2u);
  EXPECT_EQ(tiles_at(8, {.limit = 2, .seed = 3}), tiles_at(8, {.limit = 2, .seed = 3}));
}

TEST_F(EveryTacticTest, LeavesOutWhatIsNotDeterministicOnlyInThatMode) {
  runner_.deterministic = [](const Candidate& candidate) {
    return candidate.stages.at(0).tactic.number("tile") < 4;
  };
  EXPECT_EQ(tiles_at(8, {.limit = 100}).size(), 5u);
  EXPECT_EQ(tiles_at(8, {.limit = 100, .deterministic = true}), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(tiles_at(8, {.limit = 3, .deterministic = true}).size(), 3u)
      << "the limit is of those that are left";
}

}  // namespace
}  // namespace moetune::cli

#include "moetune/tactic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>

namespace moetune {
namespace {

using ::testing::HasSubstr;

Space tiles() {
  return Space({{"tile_m", {16, 32, 64}, ""}, {"order", {"rows", "columns"}, ""}},
               {{"fits", [](const Tactic& tactic, int64_t tokens) -> std::string {
                   return tactic.number("tile_m") > tokens ? "the tile is larger than the input"
                                                           : "";
                 }}});
}

TEST(Tactic, TextNamesParametersInTheirOrder) {
  EXPECT_EQ(Tactic({{"tile_m", 64}, {"order", "rows"}}).text(), "tile_m=64,order=rows");
  EXPECT_EQ(Tactic().text(), "-");
}

TEST(Tactic, DifferentValuesHaveDifferentTexts) {
  const std::vector<Tactic> tactics = {
      Tactic({{"a", 64}}),          Tactic({{"a", "64"}}),
      Tactic({{"a", "'64'"}}),      Tactic({{"a", "1,b=2"}}),
      Tactic({{"a", 1}, {"b", 2}}), Tactic({{"a", "1'"}}),
      Tactic({{"a", "1\\'"}}),      Tactic({{"a", ""}}),
      Tactic({{"a", "-"}}),         Tactic(),
      Tactic({{"a", "x y"}}),       Tactic({{"a", "x"}, {"y", 1}}),
      Tactic({{"a", "-1"}}),        Tactic({{"a", -1}}),
  };
  std::set<std::string> texts;
  for (const Tactic& tactic : tactics) {
    EXPECT_TRUE(texts.insert(tactic.text()).second) << tactic.text();
  }
}

TEST(Tactic, ReadsByNameAndType) {
  Tactic tactic({{"stages", 4}, {"order", "rows"}});
  EXPECT_EQ(tactic.number("stages"), 4);
  EXPECT_EQ(tactic.number("order", 9), 9) << "a word is no number";
  EXPECT_EQ(tactic.word("order"), "rows");
  EXPECT_EQ(tactic.word("stages", "none"), "none");
  EXPECT_EQ(tactic.number("absent", 7), 7);
  EXPECT_EQ(tactic.find("absent"), nullptr);
  tactic.set("stages", 5);
  tactic.set("new", "value");
  EXPECT_EQ(tactic.text(), "stages=5,order=rows,new=value");
}

TEST(Space, LastParameterVariesFastest) {
  const Space space = tiles();
  EXPECT_EQ(space.product_size(), 6);
  EXPECT_EQ(space.point(0).text(), "tile_m=16,order=rows");
  EXPECT_EQ(space.point(1).text(), "tile_m=16,order=columns");
  EXPECT_EQ(space.point(5).text(), "tile_m=64,order=columns");
}

TEST(Space, SaysWhyAPointIsExcluded) {
  const Space space = tiles();
  const auto why = [&](Tactic tactic) { return space.why_excluded(tactic, 40); };
  EXPECT_EQ(why(Tactic({{"tile_m", 32}, {"order", "rows"}})), "");
  EXPECT_EQ(why(Tactic({{"order", "rows"}, {"tile_m", 32}})), "") << "order does not matter";
  EXPECT_EQ(why(Tactic({{"tile_m", 64}, {"order", "rows"}})),
            "fits: the tile is larger than the input");
  EXPECT_EQ(why(Tactic({{"tile_m", 32}})), "order is missing");
  EXPECT_THAT(why(Tactic({{"tile_m", 48}, {"order", "rows"}})),
              HasSubstr("tile_m=48 is none of 16, 32, 64"));
  EXPECT_THAT(why(Tactic({{"tile_m", "32"}, {"order", "rows"}})),
              HasSubstr("tile_m='32' is none of"));
  EXPECT_EQ(why(Tactic({{"tile_m", 32}, {"order", "rows"}, {"x", 1}})), "there is no parameter x");
  EXPECT_EQ(why(Tactic({{"tile_m", 32}, {"order", "rows"}, {"order", "rows"}})),
            "a parameter is given twice");
}

TEST(Space, AnEmptyListOfParametersIsOnePointAndAnEmptyListOfValuesNone) {
  EXPECT_EQ(Space().product_size(), 1);
  EXPECT_EQ(Space().points(1), std::vector<Tactic>{Tactic()});
  EXPECT_EQ(Space({{"a", {}, ""}}).product_size(), 0);
  EXPECT_TRUE(Space({{"a", {}, ""}}).points(1).empty());
}

TEST(Space, AHugeProductIsCountedWithoutOverflow) {
  std::vector<Parameter> parameters;
  for (int i = 0; i < 40; ++i)
    parameters.push_back({std::string(1, char('a' + i)), {0, 1, 2, 3}, ""});
  EXPECT_EQ(Space(parameters).product_size(), std::numeric_limits<int64_t>::max());
}

TEST(Space, ATacticFromAnotherOrderIsBroughtIntoTodays) {
  const Space space = tiles();
  const auto ordered = space.in_order(Tactic({{"order", "rows"}, {"tile_m", 64}}));
  ASSERT_TRUE(ordered.has_value());
  EXPECT_EQ(*ordered, space.point(4));
  EXPECT_EQ(space.in_order(Tactic({{"tile_m", 64}})), std::nullopt);
}

TEST(Space, RandomSpacesListExactlyTheirAllowedPointsOnce) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 200; ++round) {
    std::vector<Parameter> parameters(1 + random() % 4);
    for (size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].name = "p" + std::to_string(p);
      for (size_t v = 0; v <= random() % 5; ++v) {
        if (random() % 2 == 0) {
          parameters[p].values.emplace_back(static_cast<int64_t>(v));
        } else {
          parameters[p].values.emplace_back("w" + std::to_string(v));
        }
      }
    }
    const uint64_t excluded_share = random() % 4;
    const auto excluded = [excluded_share](const Tactic& tactic, int64_t tokens) {
      return std::hash<std::string>()(tactic.text() + std::to_string(tokens)) % 4 < excluded_share;
    };
    const Space space(parameters, {{"rule", [&](const Tactic& tactic, int64_t tokens) {
                                      return std::string(excluded(tactic, tokens) ? "no" : "");
                                    }}});
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 100);
    std::set<std::string> expected;
    std::set<std::string> all;
    for (int64_t i = 0; i < space.product_size(); ++i) {
      const Tactic tactic = space.point(i);
      all.insert(tactic.text());
      if (!excluded(tactic, tokens)) expected.insert(tactic.text());
      Tactic::Parameters shuffled = tactic.parameters();
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      EXPECT_EQ(space.in_order(Tactic(shuffled)), tactic);
    }
    EXPECT_EQ(static_cast<int64_t>(all.size()), space.product_size()) << "no point twice";
    std::set<std::string> listed;
    for (const Tactic& tactic : space.points(tokens)) listed.insert(tactic.text());
    EXPECT_EQ(listed, expected);
  }
}

TEST(Candidate, TextHasRunnerSchemeAndStagesButNotTheVersion) {
  Candidate candidate{
      "cpu.packed", 3, "separate", {{"gemm1", Tactic({{"tile", 4}})}, {"gemm2", {}}}};
  EXPECT_EQ(candidate.text(), "cpu.packed/separate gemm1{tile=4} gemm2{-}");
  Candidate newer = candidate;
  newer.runner_version = 4;
  EXPECT_EQ(newer.text(), candidate.text());
  EXPECT_NE(newer, candidate);
}

}  // namespace
}  // namespace moetune

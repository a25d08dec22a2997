// Cases 1 to 5 of what must hold for shapes, buckets and keys.
#include "moetune/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "moetune/runner.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Buckets buckets(std::vector<int64_t> sizes, BucketRounding rounding = BucketRounding::kFloor) {
  auto made = Buckets::from(std::move(sizes), rounding);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

OptimizationProfile profile(const TuningConfig& config, const std::vector<Shape>& shapes) {
  auto made = OptimizationProfile::of(config, shapes);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : OptimizationProfile();
}

std::string error(const TuningConfig& config, const std::vector<Shape>& shapes) {
  const auto made = OptimizationProfile::of(config, shapes);
  EXPECT_FALSE(made.ok());
  if (made.ok()) return {};
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  return made.error().message;
}

TEST(Profile, WithoutDynamicDimensionsShapesAreTheirOwnProfile) {
  const std::vector<Shape> shapes = {{3, 5}, {7, 11, 13}};
  const OptimizationProfile static_profile = profile({}, shapes);
  EXPECT_EQ(static_profile.shapes(), shapes);
  EXPECT_EQ(static_profile.bucket, 0);
  EXPECT_EQ(static_profile.key(), "(3,5)(7,11,13)");
}

TEST(Profile, TheDynamicDimensionIsFlooredAndDerivedOnesFollow) {
  TuningConfig config;
  config.dynamic.push_back({"tokens", {{0, 0}}, *Buckets::powers_of_two(8192)});
  config.constraints.push_back(
      {{1, 0}, [](const std::vector<Shape>& shapes) { return shapes[0][0] + 1; }});
  for (const auto& [tokens, bucket] :
       {std::pair<int64_t, int64_t>{1000, 512}, {4000, 2048}, {10000, 8192}}) {
    const auto made = profile(config, {{tokens, 8}, {tokens + 1, 8}});
    EXPECT_THAT(made.shapes(), ElementsAre(Shape{bucket, 8}, Shape{bucket + 1, 8}));
    EXPECT_EQ(made.bucket, bucket);
    EXPECT_EQ(made.key(), "(*,8)(=,8)") << "neither the bucket nor what follows from it is key";
  }
}

TEST(Profile, AConstraintSeesWhatEarlierOnesSet) {
  TuningConfig config;
  config.constraints.push_back({{0, 1}, [](const auto& shapes) { return shapes[0][0] * 2; }});
  config.constraints.push_back({{0, 2}, [](const auto& shapes) { return shapes[0][1] + 1; }});
  EXPECT_THAT(profile(config, {{5, 0, 0}}).shapes(), ElementsAre(Shape{5, 10, 11}));
}

TEST(Profile, TensorsLinkedToOneDynamicDimensionMoveTogether) {
  std::vector<int64_t> multiples;
  for (int64_t size = 16; size <= 256; size += 16) multiples.push_back(size);
  TuningConfig config;
  config.dynamic.push_back(
      {"tokens", {{0, 0}, {1, 1}, {2, -2}}, buckets(multiples, BucketRounding::kCeil)});
  const auto made = profile(config, {{33, 4}, {2, 33, 9}, {5, 6, 33, 7}});
  EXPECT_THAT(made.shapes(), ElementsAre(Shape{48, 4}, Shape{2, 48, 9}, Shape{5, 6, 48, 7}));
  EXPECT_EQ(made.key(), "(*,4)(2,*,9)(5,6,*,7)");
}

TEST(Profile, LinksThatCannotBeAreRefused) {
  const auto linked_to = [](std::vector<DimRef> links) {
    TuningConfig config;
    config.dynamic.push_back({"tokens", std::move(links), buckets({1, 16})});
    return config;
  };
  const std::vector<Shape> shapes = {{33, 4}, {34, 9}};
  EXPECT_THAT(error(linked_to({{2, 0}}), shapes), HasSubstr("argument 2 of 2"));
  EXPECT_THAT(error(linked_to({{-1, 0}}), shapes), HasSubstr("argument -1 of 2"));
  EXPECT_THAT(error(linked_to({{0, 2}}), shapes), HasSubstr("dimension 2 of argument 0"));
  EXPECT_THAT(error(linked_to({{0, -3}}), shapes), HasSubstr("dimension -3"));
  EXPECT_THAT(error(linked_to({{0, 0}, {1, 0}}), shapes),
              HasSubstr("'tokens' is 33 in argument 0 and 34 in argument 1"));
  EXPECT_THAT(error(linked_to({{0, 0}, {0, -2}}), shapes), HasSubstr("already"));
  EXPECT_THAT(error(linked_to({}), shapes), HasSubstr("no dimension"));

  TuningConfig both = linked_to({{0, 0}});
  both.constraints.push_back({{0, 0}, [](const auto&) { return 1; }});
  EXPECT_THAT(error(both, shapes), HasSubstr("already"));
  TuningConfig two = linked_to({{0, 0}});
  two.dynamic.push_back(two.dynamic.front());
  EXPECT_THAT(error(two, shapes), HasSubstr("2 dynamic dimensions"));
}

TEST(Buckets, FloorTakesTheLargestNotAboveAndClamps) {
  const Buckets floor = buckets({100, 200, 500, 1000});
  for (const auto& [size, bucket] :
       {std::pair<int64_t, int64_t>{50, 100}, {100, 100}, {199, 100}, {350, 200}, {2000, 1000}}) {
    EXPECT_EQ(floor.bucket(size), bucket) << size;
  }
}

TEST(Buckets, CeilTakesTheSmallestNotBelowAndClamps) {
  const Buckets ceil = buckets({100, 200, 500, 1000}, BucketRounding::kCeil);
  for (const auto& [size, bucket] :
       {std::pair<int64_t, int64_t>{1, 100}, {100, 100}, {101, 200}, {201, 500}, {2000, 1000}}) {
    EXPECT_EQ(ceil.bucket(size), bucket) << size;
  }
}

TEST(Buckets, AreSortedWithoutDuplicatesAndNeverEmpty) {
  EXPECT_THAT(buckets({500, 100, 500, 200}).sizes(), ElementsAre(100, 200, 500));
  EXPECT_FALSE(Buckets::from({}).ok());
  EXPECT_FALSE(Buckets::from({4, 0}).ok());
  EXPECT_FALSE(Buckets::powers_of_two(0).ok());
  EXPECT_FALSE(Buckets::serving(-5).ok());
}

TEST(Buckets, PowersOfTwoAndServingEndAtTheMaximum) {
  EXPECT_THAT(Buckets::powers_of_two(12)->sizes(), ElementsAre(1, 2, 4, 8, 12));
  EXPECT_THAT(Buckets::powers_of_two(8)->sizes(), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(Buckets::serving(1)->sizes(), ElementsAre(1));
  EXPECT_THAT(Buckets::serving(8192)->sizes(),
              ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048,
                          2560, 3072, 3584, 4096, 8192));
  EXPECT_THAT(Buckets::serving(1500)->sizes(),
              ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1500));
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Buckets::powers_of_two(kHuge)->maximum(), kHuge);
  EXPECT_EQ(Buckets::serving(kHuge)->maximum(), kHuge);
}

// Compares with the definition by walking along sizes and buckets at once, so that 200 million
// sizes take a moment.
void expect_every_size_in_its_bucket(const Buckets& made, int64_t maximum) {
  const std::vector<int64_t>& sizes = made.sizes();
  ASSERT_EQ(sizes.back(), maximum);
  const bool floor = made.rounding() == BucketRounding::kFloor;
  size_t expected = 0;
  for (int64_t size = 1; size <= maximum; ++size) {
    if (floor && expected + 1 < sizes.size() && sizes[expected + 1] == size) ++expected;
    if (!floor && sizes[expected] < size) ++expected;
    if (made.index(size) != expected) FAIL() << size << " of " << maximum;
  }
}

TEST(BucketsSlow, EverySizeUpToEveryMaximumHasABucketThatExists) {
  for (int64_t maximum = 1; maximum <= 20'000; ++maximum) {
    const auto rounding = maximum % 2 == 0 ? BucketRounding::kFloor : BucketRounding::kCeil;
    expect_every_size_in_its_bucket(*Buckets::powers_of_two(maximum, rounding), maximum);
    if (HasFatalFailure()) return;
  }
}

TEST(Buckets, EverySizeUpToSomeMaximaHasABucketThatExists) {
  for (int64_t maximum : {1, 2, 3, 127, 128, 129, 199, 200, 255, 256, 257, 1000, 4097, 20'000}) {
    for (auto rounding : {BucketRounding::kFloor, BucketRounding::kCeil}) {
      expect_every_size_in_its_bucket(*Buckets::powers_of_two(maximum, rounding), maximum);
      expect_every_size_in_its_bucket(*Buckets::serving(maximum, rounding), maximum);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Problem, KeysDifferExactlyWhereProblemsDo) {
  const Problem one{"fused_moe", {{"experts", "128"}, {"weights", "nvfp4"}}};
  EXPECT_EQ(one.key(), "fused_moe experts=128 weights=nvfp4");
  std::vector<Problem> others = {one, one, one, one, one};
  others[0].attributes["experts"] = "64";
  others[1].attributes["ep"] = "2";
  others[2].op = "fused_moe2";
  others[3].attributes["experts"] = "128 weights=nvfp4";
  others[3].attributes.erase("weights");
  others[4].attributes.erase("weights");
  for (const Problem& other : others) EXPECT_NE(other.key(), one.key());
}

}  // namespace
}  // namespace moetune

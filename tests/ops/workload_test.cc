#include "ops/moe/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

namespace moetune {
namespace {

using ::testing::HasSubstr;

FusedMoeSpec spec_of(int64_t experts, int top_k, RouterSpec router = {}) {
  return {.hidden = 8,
          .intermediate = 8,
          .experts = experts,
          .global_experts = experts,
          .top_k = top_k,
          .router = router};
}

Routing routing_of(const FusedMoeSpec& spec, const char* workload, int64_t tokens,
                   uint64_t seed = 1, uint64_t sample = 0) {
  Result<Routing> routing =
      make_routing(spec, parse_workload(workload).value(), tokens, seed, sample);
  EXPECT_TRUE(routing.ok()) << (routing.ok() ? "" : routing.error().message);
  return std::move(routing).value();
}

std::vector<int64_t> counts_of(const FusedMoeSpec& spec, const Routing& routing) {
  return rows_per_expert(routing.ids, 0, spec.global_experts);
}

// A folder that goes away with the test.
class TraceFile {
 public:
  explicit TraceFile(const std::string& content) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "moetune-trace-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::ofstream(path()) << content;
  }
  ~TraceFile() { std::filesystem::remove_all(folder_); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  std::string path() const { return (folder_ / "trace.json").string(); }
  std::string workload() const { return "trace:" + path(); }

 private:
  std::filesystem::path folder_;
};

TEST(Workload, TextsAreRead) {
  EXPECT_EQ(parse_workload("uniform")->kind, Workload::Kind::kUniform);
  EXPECT_EQ(parse_workload("balanced")->kind, Workload::Kind::kBalanced);
  const Workload zipf = parse_workload("zipf:1.2").value();
  EXPECT_EQ(zipf.kind, Workload::Kind::kZipf);
  EXPECT_EQ(zipf.exponent, 1.2);
  EXPECT_EQ(zipf.text, "zipf:1.2");
}

TEST(Workload, MalformedTextsAreRefused) {
  for (const char* text : {"", "Uniform", "uniform:1", "zipf", "zipf:", "zipf:x", "zipf:1.2x",
                           "zipf:-1", "zipf:17", "zipf:nan", "zipf:inf", "trace"}) {
    const Result<Workload> workload = parse_workload(text);
    ASSERT_FALSE(workload.ok()) << text;
    EXPECT_EQ(workload.error().code, ErrorCode::kInvalidArgument) << text;
    EXPECT_FALSE(workload.error().hint.empty()) << text;
  }
}

TEST(Workload, BadTraceFilesAreNamedWithTheirFault) {
  EXPECT_EQ(parse_workload("trace:/nowhere/trace.json").error().code, ErrorCode::kNotFound);
  const std::vector<std::pair<const char*, const char*>> faults = {
      {"", "trace.json"},
      {"{\"counts\": [1, 2", "trace.json"},
      {"[1, 2]", "has no array"},
      {"{\"counts\": 3}", "has no array"},
      {"{\"counts\": []}", "no count above 0"},
      {"{\"counts\": [0, 0]}", "no count above 0"},
      {"{\"counts\": [1, -2]}", "counts[1] is -2"},
      {"{\"counts\": [1, \"2\"]}", "counts[1] is \"2\""},
      {"{\"counts\": [1e308, 1e308]}", "counts[1] is 1e+308"},
  };
  for (const auto& [content, says] : faults) {
    const TraceFile file(content);
    const Result<Workload> workload = parse_workload(file.workload());
    ASSERT_FALSE(workload.ok()) << content;
    EXPECT_EQ(workload.error().code, ErrorCode::kParse) << content;
    EXPECT_THAT(workload.error().message, HasSubstr(says));
    EXPECT_THAT(workload.error().message, HasSubstr(file.path()));
  }
}

TEST(Workload, TracesThatDoNotFitTheLayerAreRefused) {
  const TraceFile file(R"({"counts": [5, 0, 7, 0]})");
  const Workload workload = parse_workload(file.workload()).value();
  EXPECT_THAT(make_routing(spec_of(8, 2), workload, 4, 1, 0).error().message,
              HasSubstr("4 counts, but the layer has 8"));
  EXPECT_THAT(make_routing(spec_of(4, 3), workload, 4, 1, 0).error().message,
              HasSubstr("only 2 experts were ever used"));
}

TEST(Workload, TraceFollowsItsCounts) {
  const TraceFile file(R"({"counts": [10, 0, 30, 60], "model": "some"})");
  const FusedMoeSpec spec = spec_of(4, 1);
  const std::vector<int64_t> counts =
      counts_of(spec, routing_of(spec, file.workload().c_str(), 10000));
  EXPECT_NEAR(counts[0], 1000, 150);
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[2], 3000, 200);
  EXPECT_NEAR(counts[3], 6000, 200);
}

// The routers of formats.md, at their sizes, and the corners: as many experts per token as a group
// has, or as there are.
std::vector<FusedMoeSpec> routers() {
  const RouterSpec glm{.score = Score::kSigmoid, .selection_bias = true, .scale = 2.5f};
  RouterSpec deepseek = glm;
  deepseek.groups = 8;
  deepseek.top_groups = 4;
  RouterSpec narrow = glm;
  narrow.score = Score::kSqrtSoftplus;
  narrow.groups = 8;
  narrow.top_groups = 2;
  const RouterSpec biased_softmax{.selection_bias = true, .groups = 4, .top_groups = 2};
  const RouterSpec biased_logits{
      .selection_bias = true, .groups = 4, .top_groups = 2, .score_after_top_k = true};
  return {spec_of(256, 8, glm),
          spec_of(256, 8, deepseek),
          spec_of(384, 8, glm),
          spec_of(128, 8),
          spec_of(64, 8, {.renormalise = false}),
          spec_of(32, 4, {.score_after_top_k = true}),
          spec_of(8, 2, {.score_after_top_k = true}),
          spec_of(32, 8, narrow),
          spec_of(64, 8, biased_softmax),
          spec_of(64, 8, biased_logits),
          spec_of(16, 16),
          spec_of(9, 8, {.selection_bias = true}),
          spec_of(128, 127, {.selection_bias = true}),
          spec_of(1, 1)};
}

// make_routing() itself refuses to return what its router did not choose; so this covers that every
// router can be steered.
TEST(Workload, EveryRouterChoosesWhatWasIntended) {
  for (const FusedMoeSpec& spec : routers()) {
    ASSERT_TRUE(validate(spec).ok());
    for (const char* workload : {"uniform", "balanced", "zipf:1.2", "zipf:16"}) {
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const Routing routing = routing_of(spec, workload, 40, seed);
        for (int64_t token = 0; token < 40; ++token) {
          const auto first = routing.ids.begin() + token * spec.top_k;
          const std::set<int32_t> distinct(first, first + spec.top_k);
          EXPECT_EQ(distinct.size(), static_cast<size_t>(spec.top_k));
        }
        EXPECT_EQ(routing.router_bias.empty(), !spec.router.selection_bias);
      }
    }
  }
}

TEST(Workload, WeightsAreThoseOfARouterAtWork) {
  const FusedMoeSpec spec = spec_of(128, 8);
  const Routing routing = routing_of(spec, "uniform", 100);
  for (size_t token = 0; token < 100; ++token) {
    const auto first = routing.weights.begin() + static_cast<int64_t>(token) * 8;
    EXPECT_TRUE(std::is_sorted(first, first + 8, std::greater<>()));
    EXPECT_GT(first[0] / first[7], 1.05f);
    EXPECT_LT(first[0] / first[7], 20.0f);
  }
}

TEST(Workload, UniformUsesAllExpertsAlike) {
  const FusedMoeSpec spec = spec_of(32, 4);
  for (int64_t count : counts_of(spec, routing_of(spec, "uniform", 8000)))
    EXPECT_NEAR(count, 1000, 150);
}

TEST(Workload, UniformTouchesAsManyExpertsAsExpected) {
  const FusedMoeSpec spec = spec_of(256, 8);
  for (int64_t tokens : {1, 4, 16, 64}) {
    double touched = 0;
    constexpr int kSamples = 20;
    for (uint64_t sample = 0; sample < kSamples; ++sample) {
      touched += static_cast<double>(
          touched_experts(counts_of(spec, routing_of(spec, "uniform", tokens, 1, sample))));
    }
    EXPECT_NEAR(touched / kSamples, 256 * (1 - std::pow(1 - 8.0 / 256, tokens)), 3) << tokens;
  }
}

TEST(Workload, BalancedIsRoundRobin) {
  const FusedMoeSpec spec = spec_of(10, 4);
  for (int64_t tokens : {1, 2, 3, 5, 7, 10, 33}) {
    const std::vector<int64_t> counts = counts_of(spec, routing_of(spec, "balanced", tokens));
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    EXPECT_LE(*most - *least, 1) << tokens;
  }
}

TEST(Workload, BalancedStaysBalancedInGroups) {
  const FusedMoeSpec spec =
      spec_of(64, 8, {.score = Score::kSigmoid, .groups = 8, .top_groups = 4});
  const std::vector<int64_t> counts = counts_of(spec, routing_of(spec, "balanced", 64));
  EXPECT_THAT(counts, ::testing::Each(8));
}

TEST(Workload, ZipfFollowsItsRanks) {
  const FusedMoeSpec spec = spec_of(16, 1);
  std::vector<int64_t> counts = counts_of(spec, routing_of(spec, "zipf:1.2", 20000));
  std::sort(counts.begin(), counts.end(), std::greater<>());
  double sum = 0;
  for (int rank = 1; rank <= 16; ++rank) sum += std::pow(rank, -1.2);
  for (int rank = 1; rank <= 16; ++rank) {
    EXPECT_NEAR(counts[static_cast<size_t>(rank - 1)] / 20000.0, std::pow(rank, -1.2) / sum, 0.01)
        << rank;
  }
}

// Plackett-Luce: the second of two is drawn in proportion from what the first left.
TEST(Workload, ZipfDrawsWithoutReplacementInProportion) {
  const FusedMoeSpec spec = spec_of(3, 2);
  std::vector<int64_t> counts = counts_of(spec, routing_of(spec, "zipf:1", 30000));
  std::sort(counts.begin(), counts.end(), std::greater<>());
  const double p[] = {6 / 11.0, 3 / 11.0, 2 / 11.0};
  for (size_t i = 0; i < 3; ++i) {
    double expected = p[i];
    for (size_t first = 0; first < 3; ++first) {
      if (first != i) expected += p[first] * p[i] / (1 - p[first]);
    }
    EXPECT_NEAR(static_cast<double>(counts[i]) / 30000, expected, 0.01);
  }
}

TEST(Workload, PopularExpertsStayPopularOverSamplesAndChangeWithTheSeed) {
  const FusedMoeSpec spec = spec_of(64, 2);
  const auto busiest = [&](uint64_t seed, uint64_t sample) {
    const std::vector<int64_t> counts =
        counts_of(spec, routing_of(spec, "zipf:2", 500, seed, sample));
    return std::max_element(counts.begin(), counts.end()) - counts.begin();
  };
  std::set<std::ptrdiff_t> over_seeds;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(busiest(seed, 0), busiest(seed, 1));
    over_seeds.insert(busiest(seed, 0));
  }
  EXPECT_GT(over_seeds.size(), 4u);
}

TEST(Workload, FollowsFromItsArgumentsAlone) {
  const FusedMoeSpec spec = spec_of(64, 8, {.score = Score::kSigmoid, .selection_bias = true});
  for (const char* workload : {"uniform", "balanced", "zipf:1.2"}) {
    const Routing a = routing_of(spec, workload, 33, 5, 2);
    const Routing b = routing_of(spec, workload, 33, 5, 2);
    EXPECT_EQ(a.logits, b.logits);
    EXPECT_EQ(a.router_bias, b.router_bias);
    const Routing other_sample = routing_of(spec, workload, 33, 5, 3);
    EXPECT_NE(a.ids, other_sample.ids) << workload;
    EXPECT_EQ(a.router_bias, other_sample.router_bias);
    EXPECT_NE(a.router_bias, routing_of(spec, workload, 33, 6, 2).router_bias);
  }
}

TEST(Workload, NoTokensAreFine) {
  const Routing routing = routing_of(spec_of(8, 2), "zipf:1.2", 0);
  EXPECT_TRUE(routing.ids.empty());
  EXPECT_EQ(touched_experts(rows_per_expert(routing.ids, 0, 8)), 0);
}

TEST(Workload, RowsAreCountedOfTheRanksOwnExperts) {
  const std::vector<int32_t> ids = {0, 3, -1, 4, 4, 7, 5};
  EXPECT_THAT(rows_per_expert(ids, 3, 3), ::testing::ElementsAre(1, 2, 1));
}

}  // namespace
}  // namespace moetune

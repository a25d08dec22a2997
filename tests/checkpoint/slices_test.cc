// What the ranks of a layer compute adds up to the whole layer, for every format, bias and split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/bf16.h"
#include "base/random.h"
#include "checkpoint/made_checkpoint.h"
#include "moetune/checkpoint.h"
#include "ops/moe/reference.h"

namespace moetune::checkpoint {
namespace {

using namespace testing_checkpoint;  // NOLINT: the tests' own
using enum WeightFormat;
using ::testing::Each;
using testing_checkpoint::opened;

constexpr int64_t kTokens = 9;

/// Hidden states, and where tokens go.
struct Traffic {
  std::vector<uint16_t> hidden;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

/// Each token goes to `top_k` experts among the first `reached`.
Traffic traffic(const ModelSpec& model, int64_t reached) {
  Traffic made;
  Random random(5);
  for (int64_t i = 0; i < kTokens * model.hidden; ++i)
    made.hidden.push_back(float_to_bf16(random.normal()));
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int slot = 0; slot < model.top_k; ++slot) {
      made.ids.push_back(static_cast<int32_t>((token * 2 + slot) % reached));
      made.weights.push_back(0.125f * static_cast<float>(1 + slot));
    }
  }
  return made;
}

std::vector<float> output_of(FusedMoeSpec spec, WeightSource& weights, Traffic& traffic,
                             int32_t first) {
  spec.given_routing = true;
  Tensors arguments = {
      {"hidden", DataType::kBf16, {kTokens, spec.hidden}, traffic.hidden.data()},
      {"topk_ids", DataType::kI32, {kTokens, spec.top_k}, traffic.ids.data()},
      {"topk_weights", DataType::kF32, {kTokens, spec.top_k}, traffic.weights.data()}};
  if (spec.ep > 1) arguments.push_back({"first_expert", DataType::kI32, {1}, &first});
  arguments.push_back({"output", spec.output, {kTokens, spec.hidden}, nullptr});
  std::vector<int64_t> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  auto rows = reference_rows(spec, weights, arguments, tokens);
  EXPECT_TRUE(rows.ok()) << rows.error().message;
  return rows.ok() ? rows->values : std::vector<float>();
}

struct Layer {
  ModelSpec model;
  std::shared_ptr<Checkpoint> checkpoint;

  std::vector<float> output(const ParallelLayout& layout, Traffic& given) const {
    const FusedMoeSpec spec = layer_spec(model, std::nullopt, layout).value();
    auto weights = make_expert_weights(checkpoint, model, kLayer, spec, layout.rank);
    EXPECT_TRUE(weights.ok()) << weights.error().message;
    return weights.ok() ? output_of(spec, **weights, given, first_expert(spec, layout.rank))
                        : std::vector<float>();
  }

  std::vector<double> sum_of_ranks(int tp, int ep, Traffic& given) const {
    std::vector<double> sum(static_cast<size_t>(kTokens * model.hidden));
    for (int rank = 0; rank < tp * ep; ++rank) {
      const std::vector<float> part = output({tp, ep, rank}, given);
      EXPECT_EQ(part.size(), sum.size());
      if (part.size() != sum.size()) break;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    return sum;
  }
};

Layer make_layer(const Folder& folder, const ModelSpec& model, Style style) {
  const FusedMoeSpec spec = whole(model);
  const auto random = std::move(make_random_weights(spec, DataKind::kRealistic, 2)).value();
  return {model, opened(folder, CheckpointMaker(spec, style).tensors(*random))};
}

/// The error of `sum`, over the RMS of `whole`.
double relative_error(const std::vector<double>& sum, const std::vector<float>& whole_output) {
  double squares = 0;
  double largest = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    squares += static_cast<double>(whole_output[i]) * whole_output[i];
    largest = std::max(largest, std::abs(sum[i] - whole_output[i]));
  }
  EXPECT_GT(squares, 0);
  return largest / std::sqrt(squares / static_cast<double>(sum.size()));
}

struct Case {
  WeightFormat format;
  Style style;
};

class Slices : public testing::TestWithParam<Case> {};

TEST_P(Slices, TheSumOfAllRanksIsTheWhole) {
  const Folder folder;
  const ModelSpec model = small_model(GetParam().format, GetParam().style);
  const Layer layer = make_layer(folder, model, GetParam().style);
  Traffic given = traffic(model, model.experts);
  const std::vector<float> all = layer.output({}, given);
  ASSERT_EQ(all.size(), static_cast<size_t>(kTokens * model.hidden));
  for (const int tp : {1, 2, 3}) {
    for (const int ep : {1, 2, 3}) {
      // The reference's rows are f32: each rank rounds its part once.
      EXPECT_LT(relative_error(layer.sum_of_ranks(tp, ep, given), all), 2e-6)
          << "tp " << tp << ", ep " << ep;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Slices,
    testing::Values(Case{kBf16, Style::kProjections}, Case{kFp16, Style::kProjections},
                    Case{kFp8, Style::kProjections}, Case{kFp8Block, Style::kProjections},
                    Case{kNvfp4, Style::kProjections}, Case{kNvfp4, Style::kCompressed},
                    Case{kMxfp4, Style::kProjections}, Case{kBf16, Style::kRows},
                    Case{kBf16, Style::kColumns}, Case{kBf16, Style::kGptOss},
                    Case{kMxfp4, Style::kGptOss}),
    [](const auto& one) {
      std::string name = std::string(moetune::to_string(one.param.format)) +
                         testing_checkpoint::to_string(one.param.style);
      std::erase(name, '-');
      return name;
    });

TEST(SlicesUneven, ShardsGoToBlockBoundariesAndDiffer) {
  const Folder folder;
  const ModelSpec model = small_model(kMxfp4, Style::kGptOss);  // 5 blocks of 32
  const Layer layer = make_layer(folder, model, Style::kGptOss);
  std::vector<int64_t> rows;
  for (int rank = 0; rank < 2; ++rank)
    rows.push_back(layer_spec(model, std::nullopt, {2, 1, rank}).value().intermediate);
  EXPECT_EQ(rows, (std::vector<int64_t>{96, 64}));
  const FusedMoeSpec even = [&] {
    FusedMoeSpec spec = layer_spec(model, std::nullopt, {2, 1, 0}).value();
    spec.intermediate = 80;
    return spec;
  }();
  EXPECT_FALSE(make_expert_weights(layer.checkpoint, model, kLayer, even, 0).ok())
      << "half of the rows splits a block";
}

TEST(SlicesEp, ARankMayHaveFewerExpertsThanATokenIsSentTo) {
  const Folder folder;
  const ModelSpec model = small_model(kBf16, Style::kProjections);
  const Layer layer = make_layer(folder, model, Style::kProjections);
  Traffic given = traffic(model, model.experts);
  const FusedMoeSpec last = layer_spec(model, std::nullopt, {1, 7, 6}).value();
  ASSERT_EQ(last.experts, 1);
  ASSERT_EQ(last.top_k, 4);
  const std::vector<float> all = layer.output({}, given);
  EXPECT_LT(relative_error(layer.sum_of_ranks(1, 7, given), all), 2e-6);
  EXPECT_LT(relative_error(layer.sum_of_ranks(5, 7, given), all), 2e-6);
}

TEST(SlicesEp, ARankWithoutTokensGivesZeros) {
  for (const Style style : {Style::kProjections, Style::kGptOss}) {
    const Folder folder;
    const ModelSpec model = small_model(kBf16, style);
    const Layer layer = make_layer(folder, model, style);
    Traffic given = traffic(model, 4);  // Rank 1 of 2 has experts 4 to 6.
    EXPECT_THAT(layer.output({1, 2, 1}, given), Each(0.0f));
    EXPECT_LT(relative_error(layer.sum_of_ranks(2, 2, given), layer.output({}, given)), 2e-6);
  }
}

TEST(SlicesEp, FirstExpertFollowsTheSplit) {
  const ModelSpec model = small_model(kBf16, Style::kProjections);
  std::vector<int32_t> firsts;
  for (int rank = 0; rank < 6; ++rank)
    firsts.push_back(first_expert(layer_spec(model, std::nullopt, {2, 3, rank}).value(), rank));
  EXPECT_EQ(firsts, (std::vector<int32_t>{0, 0, 3, 3, 5, 5}));
}

}  // namespace
}  // namespace moetune::checkpoint

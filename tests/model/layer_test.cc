// One rank's share of a layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_spec.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

ModelSpec preset(const char* name) {
  const ModelSpec* spec = find_preset(name);
  EXPECT_NE(spec, nullptr) << name;
  return spec == nullptr ? ModelSpec{} : *spec;
}

int64_t block(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNvfp4: return 16;
    case WeightFormat::kMxfp4: return 32;
    case WeightFormat::kFp8Block: return 128;
    default: return 1;
  }
}

TEST(LayerSpec, OfAWholeLayerHasTheModelsSizes) {
  const auto spec = layer_spec(preset("qwen3-30b-a3b"), WeightFormat::kNvfp4, {});
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->hidden, 2048);
  EXPECT_EQ(spec->intermediate, 768);
  EXPECT_EQ(spec->experts, 128);
  EXPECT_EQ(spec->global_experts, 128);
  EXPECT_EQ(spec->weights, WeightFormat::kNvfp4);
}

TEST(LayerSpec, GptOssAtTp8GetsWholeBlocksSoRanksDiffer) {
  // 2880 / 8 = 360 cuts blocks of 32; 90 blocks over 8 ranks are 12 or 11 each.
  const ModelSpec model = preset("gpt-oss-20b");
  EXPECT_EQ(layer_spec(model, std::nullopt, {.tp = 8, .rank = 0})->intermediate, 384);
  EXPECT_EQ(layer_spec(model, std::nullopt, {.tp = 8, .rank = 7})->intermediate, 352);
}

TEST(LayerSpec, SharesOfAllRanksAddUpToTheLayerInWholeBlocks) {
  for (const std::string& name : preset_names()) {
    const ModelSpec model = preset(name.c_str());
    for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kNvfp4,
                                      WeightFormat::kMxfp4, WeightFormat::kFp8Block}) {
      for (const auto& [tp, ep] :
           {std::pair{1, 1}, {2, 1}, {3, 1}, {8, 1}, {1, 2}, {1, 7}, {2, 4}, {4, 8}}) {
        if (tp > model.intermediate / block(format) || ep > model.experts) continue;
        int64_t intermediate = 0;
        int64_t experts = 0;
        for (int rank = 0; rank < tp * ep; ++rank) {
          const auto spec = layer_spec(model, format, {.tp = tp, .ep = ep, .rank = rank});
          ASSERT_TRUE(spec.ok()) << name << ": " << spec.error().message;
          const bool last = rank % tp == tp - 1;  // It has what does not fill a block.
          EXPECT_TRUE(last || spec->intermediate % block(format) == 0) << name;
          if (rank < tp) intermediate += spec->intermediate;
          if (rank % tp == 0) experts += spec->experts;
        }
        EXPECT_EQ(intermediate, model.intermediate) << name << " tp " << tp;
        EXPECT_EQ(experts, model.experts) << name << " ep " << ep;
      }
    }
  }
}

TEST(LayerSpec, LayoutsThatLeaveRanksIdleAreRefusedWithWhatWouldFit) {
  const ModelSpec model = preset("qwen3-30b-a3b");
  const auto tp = layer_spec(model, WeightFormat::kFp8Block, {.tp = 7});
  ASSERT_FALSE(tp.ok());
  EXPECT_EQ(tp.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(tp.error().hint, HasSubstr("--tp 6"));

  const auto ep = layer_spec(model, std::nullopt, {.ep = 129});
  ASSERT_FALSE(ep.ok());
  EXPECT_THAT(ep.error().hint, HasSubstr("--ep 128"));

  for (const ParallelLayout& layout : {ParallelLayout{.tp = 0},
                                       {.ep = -1},
                                       {.rank = 1},
                                       {.rank = -1},
                                       {.tp = 2, .ep = 2, .rank = 4}}) {
    const auto spec = layer_spec(model, std::nullopt, layout);
    ASSERT_FALSE(spec.ok());
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(LayerSpec, SharedExpertsBecomeExpertsOfTheOperatorWhereTheyFit) {
  const ModelSpec glm = preset("glm-5");
  EXPECT_EQ(layer_spec(glm, LayerChoices{}, {})->shared_experts, 0);
  const auto fused = layer_spec(glm, LayerChoices{.shared_experts = true}, {.tp = 8, .rank = 3});
  ASSERT_TRUE(fused.ok()) << fused.error().message;
  EXPECT_EQ(fused->shared_experts, 1);
  EXPECT_EQ(fused->held_experts(), 257);
  EXPECT_EQ(fused->slots(), 9);
  EXPECT_EQ(fused->intermediate, 256);

  const auto refusal = [](const ModelSpec& model, const ParallelLayout& layout) {
    return layer_spec(model, LayerChoices{.shared_experts = true}, layout).error();
  };
  EXPECT_EQ(refusal(preset("qwen3-30b-a3b"), {}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal(glm, {.ep = 2}).code, ErrorCode::kUnsupported);
  ModelSpec odd = glm;
  odd.shared_intermediate = 3000;
  EXPECT_THAT(refusal(odd, {}).message, ::testing::HasSubstr("3000"));
  odd.shared_intermediate = 4096;
  EXPECT_EQ(layer_spec(odd, LayerChoices{.shared_experts = true}, {})->shared_experts, 2);
  odd.shared_gate = true;
  EXPECT_THAT(refusal(odd, {}).message, ::testing::HasSubstr("gate"));
}

TEST(LayerSpec, RoundedActivationsGoWithWeightsOfTheirName) {
  const LayerChoices rounded{.weights = WeightFormat::kFp8Block,
                             .activations = ActivationFormat::kFp8Block};
  EXPECT_EQ(layer_spec(preset("glm-5"), rounded, {})->activations, ActivationFormat::kFp8Block);
  const LayerChoices one_scale{.weights = WeightFormat::kFp8,
                               .activations = ActivationFormat::kFp8};
  EXPECT_EQ(layer_spec(preset("glm-5"), one_scale, {})->activations, ActivationFormat::kFp8);
  LayerChoices crossed = one_scale;
  crossed.weights = WeightFormat::kFp8Block;
  EXPECT_THAT(layer_spec(preset("glm-5"), crossed, {}).error().message,
              ::testing::HasSubstr("fp8 activations with fp8-block weights"));
  LayerChoices wrong = rounded;
  wrong.weights = WeightFormat::kNvfp4;
  EXPECT_THAT(layer_spec(preset("glm-5"), wrong, {}).error().message,
              ::testing::HasSubstr("nvfp4"));
}

}  // namespace
}  // namespace moetune

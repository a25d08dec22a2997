// Presets against the config.json files they are taken from, where those are at hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "model/model_spec.h"

namespace moetune {
namespace {

struct Published {
  const char* preset;
  const char* folder;
};

class Presets : public ::testing::TestWithParam<Published> {};

TEST_P(Presets, AreWhatTheirConfigSays) {
  const std::string folder = std::string(MOETUNE_REAL_CONFIGS) + "/" + GetParam().folder;
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no folder " << folder << " (CMake's MOETUNE_REAL_CONFIGS)";
  const ModelSpec* preset = find_preset(GetParam().preset);
  ASSERT_NE(preset, nullptr);
  const auto spec = load_model(folder);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(preset->family, spec->family);
  EXPECT_EQ(preset->hidden, spec->hidden);
  EXPECT_EQ(preset->intermediate, spec->intermediate);
  EXPECT_EQ(preset->experts, spec->experts);
  EXPECT_EQ(preset->top_k, spec->top_k);
  EXPECT_EQ(preset->activation, spec->activation);
  EXPECT_EQ(preset->router, spec->router);
  EXPECT_EQ(preset->bias, spec->bias);
  EXPECT_EQ(preset->layers, spec->layers);
  EXPECT_EQ(preset->moe_layers, spec->moe_layers);
  EXPECT_EQ(preset->dense_first, spec->dense_first);
  EXPECT_EQ(preset->shared_experts, spec->shared_experts);
  EXPECT_EQ(preset->shared_intermediate, spec->shared_intermediate);
  EXPECT_EQ(preset->weights, spec->weights);
  EXPECT_EQ(preset->weights_text, spec->weights_text);
}

INSTANTIATE_TEST_SUITE_P(Published, Presets,
                         ::testing::Values(Published{"deepseek-v3", "deepseek-v3"},
                                           Published{"glm-5", "glm-5"},
                                           Published{"gpt-oss-120b", "gpt-oss-120b"},
                                           Published{"gpt-oss-20b", "gpt-oss-20b"},
                                           Published{"kimi-k2", "kimi-k2-instruct"},
                                           Published{"mixtral-8x7b", "mixtral-8x7b-v0.1"},
                                           Published{"qwen3-235b-a22b", "qwen3-235b-a22b"},
                                           Published{"qwen3-30b-a3b", "qwen3-30b-a3b"}),
                         [](const auto& test) {
                           std::string name = test.param.preset;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class PublishedVariants : public ::testing::TestWithParam<std::pair<const char*, WeightFormat>> {};

TEST_P(PublishedVariants, AreReadWithTheFormatOfTheirExperts) {
  const std::string folder = std::string(MOETUNE_REAL_CONFIGS) + "/" + GetParam().first;
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no folder " << folder << " (CMake's MOETUNE_REAL_CONFIGS)";
  const auto spec = load_model(folder);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->weights, GetParam().second) << spec->weights_text;
  EXPECT_TRUE(spec->notes.empty()) << spec->notes.front();
}

INSTANTIATE_TEST_SUITE_P(Published, PublishedVariants,
                         ::testing::Values(std::pair{"glm-5-nvfp4", WeightFormat::kNvfp4},
                                           std::pair{"glm-5-fp8", WeightFormat::kFp8Block},
                                           std::pair{"deepseek-v3.1-nvfp4", WeightFormat::kNvfp4},
                                           std::pair{"kimi-k2.6-nvfp4", WeightFormat::kNvfp4},
                                           std::pair{"qwen3-235b-a22b-nvfp4", WeightFormat::kNvfp4},
                                           std::pair{"qwen3-30b-a3b-fp8",
                                                     WeightFormat::kFp8Block}));

TEST(PresetNames, AreSortedAndEachGivesAValidLayer) {
  const std::vector<std::string> names = preset_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(names.size(), 10u);
  for (const std::string& name : names) {
    ASSERT_NE(find_preset(name), nullptr);
    EXPECT_EQ(find_preset(name)->name, name);
    EXPECT_TRUE(layer_spec(*find_preset(name), std::nullopt, {}).ok()) << name;
  }
  EXPECT_EQ(find_preset("nothing"), nullptr);
}

}  // namespace
}  // namespace moetune

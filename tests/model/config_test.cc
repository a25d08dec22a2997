// What parse_model() reads from each family's config.json, and what it says of one that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "model/configs.h"
#include "model/model_spec.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ModelSpec parsed(const Json& config, const std::string& quantisation = "") {
  auto spec = parse_model(config.dump(), quantisation, "config.json");
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  return spec.ok() ? *spec : ModelSpec{};
}

Error rejected(const Json& config) {
  auto spec = parse_model(config.dump(), "", "config.json");
  EXPECT_FALSE(spec.ok()) << config.dump();
  return spec.ok() ? Error{} : spec.error();
}

TEST(ModelConfig, ReadsQwen3Moe) {
  const ModelSpec spec = parsed(qwen3_moe_config());
  EXPECT_EQ(spec.family, "qwen3_moe");
  EXPECT_EQ(spec.hidden, 2048);
  EXPECT_EQ(spec.intermediate, 768) << "the experts' size, not the dense layers'";
  EXPECT_EQ(spec.experts, 128);
  EXPECT_EQ(spec.top_k, 8);
  EXPECT_EQ(spec.layers, 48);
  EXPECT_EQ(spec.moe_layers, 48);
  EXPECT_EQ(spec.shared_experts, 0);
  EXPECT_EQ(spec.router, (RouterSpec{.score = Score::kSoftmax, .renormalise = true}));
  EXPECT_EQ(spec.activation, Activation::kSwiGlu);
  EXPECT_EQ(spec.weights, WeightFormat::kBf16);
  EXPECT_FALSE(spec.bias);
  EXPECT_THAT(spec.notes, IsEmpty());
}

TEST(ModelConfig, ReadsDeepSeekRouterGroupsSharedExpertsAndDenseLayers) {
  const ModelSpec spec = parsed(deepseek_v3_config());
  EXPECT_EQ(spec.router, (RouterSpec{.score = Score::kSigmoid,
                                     .selection_bias = true,
                                     .groups = 8,
                                     .top_groups = 4,
                                     .renormalise = true,
                                     .scale = 2.5F}));
  EXPECT_EQ(spec.dense_first, 3);
  EXPECT_EQ(spec.moe_layers, 58);
  EXPECT_EQ(spec.shared_experts, 1);
  EXPECT_EQ(spec.shared_intermediate, 2048);
  EXPECT_EQ(spec.weights, WeightFormat::kFp8Block);
}

TEST(ModelConfig, KeepingAllGroupsIsNoGrouping) {
  Json config = deepseek_v3_config();
  config["topk_group"] = 8;
  EXPECT_EQ(parsed(config).router.groups, 1);
}

TEST(ModelConfig, ReadsGptOss) {
  const ModelSpec spec = parsed(gpt_oss_config());
  EXPECT_EQ(spec.intermediate, 2880);
  EXPECT_EQ(spec.experts, 32);
  EXPECT_EQ(spec.top_k, 4);
  EXPECT_TRUE(spec.bias);
  EXPECT_EQ(spec.activation, Activation::kSwiGluClamped);
  EXPECT_EQ(spec.router, (RouterSpec{.score_after_top_k = true, .renormalise = false}));
  EXPECT_EQ(spec.weights, WeightFormat::kMxfp4);
}

TEST(ModelConfig, ReadsMixtralGraniteAndOlmoe) {
  const Json base = {{"hidden_size", 1024},       {"intermediate_size", 512},
                     {"num_experts_per_tok", 2},  {"num_hidden_layers", 4},
                     {"torch_dtype", "bfloat16"}, {"hidden_act", "silu"}};
  for (const char* type : {"mixtral", "granitemoe"}) {
    Json config = base;
    config["model_type"] = type;
    config["num_local_experts"] = 8;
    const ModelSpec spec = parsed(config);
    EXPECT_EQ(spec.intermediate, 512) << type;
    EXPECT_EQ(spec.experts, 8) << type;
    EXPECT_TRUE(spec.router.score_after_top_k) << type;
  }
  Json olmoe = base;
  olmoe["model_type"] = "olmoe";
  olmoe["num_experts"] = 64;
  olmoe["norm_topk_prob"] = false;
  EXPECT_EQ(parsed(olmoe).router, (RouterSpec{.renormalise = false}));
  EXPECT_EQ(parsed(olmoe).intermediate, 512);
}

TEST(ModelConfig, ReadsMultimodalModelsLanguagePart) {
  Json inner = deepseek_v3_config();
  inner.erase("quantization_config");
  const Json outer = {
      {"model_type", "kimi_k25"},
      {"text_config", inner},
      {"vision_config", {{"hidden_size", 1152}}},
      {"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}}};
  const ModelSpec spec = parsed(outer);
  EXPECT_EQ(spec.family, "deepseek_v3");
  EXPECT_EQ(spec.hidden, 7168);
  EXPECT_EQ(spec.weights, WeightFormat::kNvfp4) << "quantisation stands outside of text_config";
}

TEST(ModelConfig, CountsLayersWithExpertsHoweverTheyAreChosen) {
  Json config = qwen3_moe_config();
  config["decoder_sparse_step"] = 2;
  EXPECT_EQ(parsed(config).moe_layers, 24);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = {0, 5};
  EXPECT_EQ(parsed(config).moe_layers, 46);
  EXPECT_EQ(parsed(config).dense_first, 1);
  config["mlp_only_layers"] = Json::array();
  config["num_hidden_layers"] = 4;
  config["moe_layer_freq"] = {0, 1, 1, 1};
  EXPECT_EQ(parsed(config).moe_layers, 3);
}

TEST(ModelConfig, UnknownFamiliesAreReadByTheirFieldsAndItSaysSo) {
  Json config = qwen3_moe_config();
  config["model_type"] = "brand_new_moe";
  const ModelSpec spec = parsed(config);
  EXPECT_EQ(spec.intermediate, 768);
  ASSERT_THAT(spec.notes, SizeIs(1));
  EXPECT_THAT(spec.notes[0], HasSubstr("brand_new_moe"));
}

TEST(ModelConfig, NullCountsAsAbsent) {
  Json config = qwen3_moe_config();
  config["num_hidden_layers"] = nullptr;
  config["quantization_config"] = nullptr;
  EXPECT_EQ(parsed(config).layers, 0);
}

TEST(ModelConfig, ADenseModelIsNamedAsSuchWithTheFieldsThatAreMissing) {
  const Error error =
      rejected({{"model_type", "llama"}, {"hidden_size", 4096}, {"intermediate_size", 11008}});
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("not a Mixture-of-Experts model"));
  EXPECT_THAT(error.message, HasSubstr("llama"));
  EXPECT_THAT(error.message, HasSubstr("num_experts, n_routed_experts or num_local_experts"));
}

TEST(ModelConfig, AMissingFieldIsNamed) {
  for (const char* field : {"hidden_size", "moe_intermediate_size", "num_experts_per_tok"}) {
    Json config = qwen3_moe_config();
    config.erase(field);
    const Error error = rejected(config);
    EXPECT_EQ(error.code, ErrorCode::kParse);
    EXPECT_THAT(error.message, HasSubstr(field));
  }
}

TEST(ModelConfig, AbsurdSizesAreNamedWithTheirValue) {
  const std::vector<std::pair<Json, std::string>> values = {
      {-1, "-1"},
      {0, "0"},
      {1e18, "1e+18"},
      {0.5, "0.5"},
      {"2048", "\"2048\""},
      {true, "true"},
      {Json::array({1}), "an array"},
      {18446744073709551615u, "18446744073709551615"}};
  for (const char* field : {"hidden_size", "moe_intermediate_size", "num_experts",
                            "num_experts_per_tok", "num_hidden_layers"}) {
    for (const auto& [value, text] : values) {
      Json config = qwen3_moe_config();
      config[field] = value;
      const Error error = rejected(config);
      EXPECT_THAT(error.message, HasSubstr(field));
      EXPECT_THAT(error.message, HasSubstr(text));
    }
  }
}

TEST(ModelConfig, MoreExpertsPerTokenThanExpertsIsAnError) {
  Json config = qwen3_moe_config();
  config["num_experts"] = 4;
  EXPECT_THAT(rejected(config).message, HasSubstr("num_experts_per_tok is 8"));
}

TEST(ModelConfig, WhatTheOperatorDoesNotHaveIsUnsupportedWithItsName) {
  Json gelu = qwen3_moe_config();
  gelu["hidden_act"] = "gelu";
  EXPECT_EQ(rejected(gelu).code, ErrorCode::kUnsupported);
  EXPECT_THAT(rejected(gelu).message, HasSubstr("gelu"));

  Json score = deepseek_v3_config();
  score["scoring_func"] = "tanh";
  EXPECT_EQ(rejected(score).code, ErrorCode::kUnsupported);
  EXPECT_THAT(rejected(score).message, HasSubstr("tanh"));

  Json groups = deepseek_v3_config();
  groups["topk_method"] = "group_limited_greedy";
  EXPECT_EQ(rejected(groups).code, ErrorCode::kUnsupported);

  Json mixing = qwen3_moe_config();
  mixing["model_type"] = "phimoe";
  EXPECT_EQ(rejected(mixing).code, ErrorCode::kUnsupported);
}

TEST(ModelConfig, GroupsThatDoNotDivideTheExpertsAreAnError) {
  Json config = deepseek_v3_config();
  config["n_group"] = 7;
  EXPECT_THAT(rejected(config).message, HasSubstr("256 experts do not form 7 equal groups"));
}

TEST(ModelConfig, TextThatIsNoConfigIsAParseError) {
  for (const std::string text :
       {"", "{", "[1, 2]", "\"text\"", "nul", "{\"a\": 1e999}", "\xff\xfe"}) {
    const auto spec = parse_model(text, "", "config.json");
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kParse) << text;
    EXPECT_THAT(spec.error().message, HasSubstr("config.json")) << text;
  }
}

TEST(ModelConfig, DeepNestingIsRefusedNotFollowed) {
  for (const auto& [open, close] : {std::pair{"[", "]"}, std::pair{"{\"a\":", "}"}}) {
    std::string text = "{\"num_experts\":";
    for (int i = 0; i < 100000; ++i) text += open;
    text += "1";
    for (int i = 0; i < 100000; ++i) text += close;
    const auto spec = parse_model(text + "}", "", "config.json");
    ASSERT_FALSE(spec.ok());
    EXPECT_EQ(spec.error().code, ErrorCode::kParse);
  }
}

}  // namespace
}  // namespace moetune

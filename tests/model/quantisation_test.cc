// From quantisation_config and hf_quant_config.json to the format of the experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "model/configs.h"
#include "model/model_spec.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

ModelSpec with(const Json& quantisation_config, const std::string& hf_quant_config = "") {
  Json config = qwen3_moe_config();
  if (!quantisation_config.is_null()) config["quantization_config"] = quantisation_config;
  auto spec = parse_model(config.dump(), hf_quant_config, "config.json");
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  return spec.ok() ? *spec : ModelSpec{};
}

std::string modelopt_file(const std::vector<std::string>& excluded,
                          const char* algorithm = "NVFP4") {
  const Json file = {
      {"quantization",
       {{"quant_algo", algorithm}, {"group_size", 16}, {"exclude_modules", excluded}}}};
  return file.dump();
}

TEST(StoredWeights, AreWhatTheMethodSays) {
  const std::vector<std::pair<Json, WeightFormat>> cases = {
      {{{"quant_method", "fp8"}}, WeightFormat::kFp8},
      {{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, WeightFormat::kFp8Block},
      {{{"quant_method", "mxfp4"}}, WeightFormat::kMxfp4},
      {{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, WeightFormat::kNvfp4},
      {{{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}, WeightFormat::kFp8},
      {{{"quant_method", "compressed-tensors"},
        {"config_groups",
         {{"group_0", {{"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}}}}}}},
       WeightFormat::kNvfp4},
      {{{"quant_method", "compressed-tensors"},
        {"config_groups",
         {{"group_0",
           {{"weights",
             {{"num_bits", 8},
              {"type", "float"},
              {"strategy", "block"},
              {"block_structure", {128, 128}}}}}}}}},
       WeightFormat::kFp8Block},
  };
  for (const auto& [config, format] : cases)
    EXPECT_EQ(with(config).weights, format) << config.dump();
}

TEST(StoredWeights, UnquantisedOnesFollowTheNumberType) {
  const std::vector<std::pair<const char*, WeightFormat>> cases = {
      {"bfloat16", WeightFormat::kBf16},
      {"float16", WeightFormat::kFp16},
      {"float32", WeightFormat::kBf16}};
  for (const auto& [type, format] : cases) {
    Json config = qwen3_moe_config();
    config["torch_dtype"] = type;
    const auto spec = parse_model(config.dump(), "", "config.json");
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(spec->weights, format) << type;
    EXPECT_EQ(spec->notes.empty(), type != std::string("float32"))
        << "tuning another format than the checkpoint's is said";
  }
}

TEST(StoredWeights, ModelOptFileBesideTheConfigDecides) {
  EXPECT_EQ(with(nullptr, modelopt_file({"lm_head"})).weights, WeightFormat::kNvfp4);
}

TEST(StoredWeights, ExcludingRoutersOrAttentionLeavesExpertsQuantised) {
  const ModelSpec spec = with(
      nullptr, modelopt_file({"model.layers.0.mlp.gate", "model.layers.*.self_attn*",
                              "language_model.model.layers.1.mlp.shared_experts*", "lm_head"}));
  EXPECT_EQ(spec.weights, WeightFormat::kNvfp4);
  EXPECT_TRUE(spec.notes.empty());
}

TEST(StoredWeights, ExcludingTheExpertsOfAllLayersLeavesThemPlain) {
  const ModelSpec spec = with(nullptr, modelopt_file({"model.layers.*.mlp.experts*"}));
  EXPECT_EQ(spec.weights, WeightFormat::kBf16);
  ASSERT_EQ(spec.notes.size(), 1u);
  EXPECT_THAT(spec.notes[0], HasSubstr("leaves the experts as they are"));
}

TEST(StoredWeights, ExcludingSomeLayersIsSaid) {
  const ModelSpec spec = with(nullptr, modelopt_file({"model.layers.0", "model.layers.47.mlp"}));
  EXPECT_EQ(spec.weights, WeightFormat::kNvfp4);
  ASSERT_EQ(spec.notes.size(), 1u);
  EXPECT_THAT(spec.notes[0], HasSubstr("2 of 48"));
}

TEST(StoredWeights, ALayersNumberIsNotAPrefixOfAnother) {
  const ModelSpec spec = with(nullptr, modelopt_file({"model.layers.1"}));
  ASSERT_EQ(spec.notes.size(), 1u);
  EXPECT_THAT(spec.notes[0], HasSubstr("1 of 48"));
}

TEST(StoredWeights, UnknownFormatsAreRememberedAndOnlyMatterWhenNothingOverridesThem) {
  for (const Json& config :
       {Json{{"quant_method", "awq"}, {"bits", 4}},
        Json{{"quant_method", "modelopt"}, {"quant_algo", "W4A8_AWQ"}},
        Json{{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}},
        Json{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 32}}}) {
    const ModelSpec spec = with(config);
    EXPECT_FALSE(spec.weights.has_value()) << config.dump();
    const auto layer = layer_spec(spec, std::nullopt, {});
    ASSERT_FALSE(layer.ok());
    EXPECT_EQ(layer.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(layer.error().hint, HasSubstr("--weights"));
    EXPECT_TRUE(layer_spec(spec, WeightFormat::kBf16, {}).ok());
  }
}

}  // namespace
}  // namespace moetune

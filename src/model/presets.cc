// Models that moetune knows by name: the facts of their published config.json files.
#include <algorithm>

#include "model/model_spec.h"

namespace moetune {
namespace {

RouterSpec softmax(bool renormalise) {
  RouterSpec router;
  router.renormalise = renormalise;
  return router;
}

RouterSpec top_k_then_softmax() {
  RouterSpec router;
  router.score_after_top_k = true;
  router.renormalise = false;
  return router;
}

RouterSpec biased_sigmoid(float scale, int groups = 1, int top_groups = 1) {
  RouterSpec router;
  router.score = Score::kSigmoid;
  router.selection_bias = true;
  router.groups = groups;
  router.top_groups = top_groups;
  router.scale = scale;
  return router;
}

struct Sizes {
  int64_t hidden, intermediate, experts;
  int top_k;
};

struct Layers {
  int64_t all;
  int64_t dense_first = 0;
  int64_t shared_experts = 0;
};

ModelSpec make(const char* name, const char* family, Sizes sizes, Layers layers, RouterSpec router,
               WeightFormat weights, const char* weights_text) {
  ModelSpec spec;
  spec.name = name;
  spec.origin = "preset";
  spec.family = family;
  spec.hidden = sizes.hidden;
  spec.intermediate = sizes.intermediate;
  spec.experts = sizes.experts;
  spec.top_k = sizes.top_k;
  spec.router = router;
  spec.layers = layers.all;
  spec.moe_layers = layers.all - layers.dense_first;
  spec.dense_first = layers.dense_first;
  spec.shared_experts = layers.shared_experts;
  spec.shared_intermediate = layers.shared_experts * sizes.intermediate;
  spec.weights = weights;
  spec.weights_text = weights_text;
  return spec;
}

ModelSpec gpt_oss(const char* name, int64_t experts, int64_t layers) {
  ModelSpec spec = make(name, "gpt_oss", {2880, 2880, experts, 4}, {layers}, top_k_then_softmax(),
                        WeightFormat::kMxfp4, "mxfp4");
  spec.activation = Activation::kSwiGluClamped;
  spec.bias = true;
  return spec;
}

/// In alphabetical order.
const std::vector<ModelSpec>& presets() {
  static const std::vector<ModelSpec> all = {
      make("deepseek-v3", "deepseek_v3", {7168, 2048, 256, 8}, {61, 3, 1},
           biased_sigmoid(2.5F, 8, 4), WeightFormat::kFp8Block, "fp8 by blocks"),
      make("glm-5", "glm_moe_dsa", {6144, 2048, 256, 8}, {78, 3, 1}, biased_sigmoid(2.5F),
           WeightFormat::kBf16, "bfloat16"),
      gpt_oss("gpt-oss-120b", 128, 36),
      gpt_oss("gpt-oss-20b", 32, 24),
      make("granite-3.1-1b", "granitemoe", {1024, 512, 32, 8}, {24}, top_k_then_softmax(),
           WeightFormat::kBf16, "bfloat16"),
      make("kimi-k2", "kimi_k2", {7168, 2048, 384, 8}, {61, 1, 1}, biased_sigmoid(2.827F),
           WeightFormat::kFp8Block, "fp8 by blocks"),
      make("mixtral-8x7b", "mixtral", {4096, 14336, 8, 2}, {32}, top_k_then_softmax(),
           WeightFormat::kBf16, "bfloat16"),
      make("olmoe-1b-7b", "olmoe", {2048, 1024, 64, 8}, {16}, softmax(false), WeightFormat::kBf16,
           "bfloat16"),
      make("qwen3-235b-a22b", "qwen3_moe", {4096, 1536, 128, 8}, {94}, softmax(true),
           WeightFormat::kBf16, "bfloat16"),
      make("qwen3-30b-a3b", "qwen3_moe", {2048, 768, 128, 8}, {48}, softmax(true),
           WeightFormat::kBf16, "bfloat16"),
  };
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelSpec& spec : presets()) names.push_back(spec.name);
  return names;
}

const ModelSpec* find_preset(std::string_view name) {
  const auto it = std::find_if(presets().begin(), presets().end(),
                               [&](const ModelSpec& spec) { return spec.name == name; });
  return it == presets().end() ? nullptr : &*it;
}

}  // namespace moetune

// Layers of small checkpoints against what the models' own reference code made of the same hidden
// states (tests/checkpoint/make_reference_models.py).
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "checkpoint/safetensors.h"
#include "model/model_spec.h"
#include "moetune/cpp.h"
#include "ops/moe/reference.h"
#include "ops/moe/verify.h"

namespace moetune {
namespace {

struct Model {
  const char* name;
  int64_t layer = 0;
  int most_tp = 3;  // As many shares as the format has blocks.
};

template <typename T>
std::vector<T> values_of(const checkpoint::SafetensorsFile& file, const char* name) {
  const auto* tensor = file.find(name);
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

/// What a folder holds beside its weights, and its router.
struct Example {
  explicit Example(const Model& model)
      : folder(std::string(MOETUNE_REFERENCE_MODELS) + "/" + model.name), layer(model.layer) {
    const auto file =
        std::move(checkpoint::SafetensorsFile::open(folder + "/example.safetensors")).value();
    hidden = values_of<uint16_t>(*file, "hidden");
    output = values_of<float>(*file, "output");
    spec = layer_spec(folder).value();
    tokens = static_cast<int64_t>(output.size()) / spec.hidden;
    router = checkpoint_router(folder, layer).value();
    const auto experts = static_cast<size_t>(spec.global_experts);
    const auto width = static_cast<size_t>(spec.hidden);
    for (size_t token = 0; token < static_cast<size_t>(tokens); ++token) {
      for (size_t expert = 0; expert < experts; ++expert) {
        double sum = router.logit_bias.empty() ? 0 : router.logit_bias[expert];
        for (size_t i = 0; i < width; ++i)
          sum += static_cast<double>(bf16_to_float(hidden[token * width + i])) *
                 router.weight[expert * width + i];
        logits.push_back(static_cast<float>(sum));
      }
    }
  }

  FusedMoeSpec spec_of(const ParallelLayout& layout) const {
    FusedMoeSpec one =
        layer_spec(folder, {.tp = layout.tp, .ep = layout.ep, .rank = layout.rank}).value();
    one.output = DataType::kF32;
    return one;
  }

  /// Adds a rank's output, from the double-precision reference.
  Status add_reference(const ParallelLayout& layout, std::vector<double>& sum) {
    const FusedMoeSpec one = spec_of(layout);
    auto weights = checkpoint_weights(folder, layer, one, layout.rank);
    if (!weights.ok()) return weights.error();
    int32_t first = first_expert(one, layout.rank);
    Tensors arguments = {{"hidden", DataType::kBf16, {tokens, one.hidden}, hidden.data()},
                         {"logits", DataType::kF32, {tokens, one.global_experts}, logits.data()}};
    if (one.router.selection_bias)
      arguments.push_back(
          {"router_bias", DataType::kF32, {one.global_experts}, router.selection_bias.data()});
    if (one.ep > 1) arguments.push_back({"first_expert", DataType::kI32, {1}, &first});
    arguments.push_back({"output", DataType::kF32, {tokens, one.hidden}, nullptr});
    std::vector<int64_t> all(static_cast<size_t>(tokens));
    std::iota(all.begin(), all.end(), 0);
    auto rows = reference_rows(one, **weights, arguments, all);
    if (!rows.ok()) return rows.error();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rows->values[i];
    return {};
  }

  /// The same from a layer that serves, on the CPU.
  Status add_layer(const ParallelLayout& layout, std::vector<double>& sum) const {
    const FusedMoeSpec one = spec_of(layout);
    auto weights = checkpoint_weights(folder, layer, one, layout.rank);
    if (!weights.ok()) return weights.error();
    auto made = FusedMoe::create(one, **weights,
                                 {.device = "cpu",
                                  .max_tokens = tokens,
                                  .threads = 1,
                                  .router_bias = router.selection_bias,
                                  .first_expert = first_expert(one, layout.rank),
                                  .defaults_only = true});
    if (!made.ok()) return made.error();
    std::vector<float> part(sum.size());
    auto done = (*made)->run(tokens, hidden.data(), logits.data(), part.data());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    return done;
  }

  /// Against the model's own output, as kernels are against the reference.
  void expect_close(const std::vector<double>& sum, double limit, const std::string& what) {
    std::vector<float> rows(sum.begin(), sum.end());
    ReferenceRows expected{{}, spec.hidden, output};
    for (int64_t token = 0; token < tokens; ++token) expected.tokens.push_back(token);
    const OutputCheck check =
        compare_close(expected, {"output", DataType::kF32, {tokens, spec.hidden}, rows.data()});
    EXPECT_TRUE(check.verdict.ok) << what << ": " << check.verdict.reason;
    EXPECT_LT(check.relative_rms, limit) << what;
    testing::Test::RecordProperty(what, fmt::format("{:.2e}", check.relative_rms));
  }

  std::string folder;
  int64_t layer;
  FusedMoeSpec spec;
  int64_t tokens = 0;
  std::vector<uint16_t> hidden;
  std::vector<float> logits;
  std::vector<float> output;
  RouterWeights router;
};

std::vector<ParallelLayout> layouts(const Model& model) {
  return {{1, 1}, {2, 1}, {1, 3}, {model.most_tp, 2}};
}

class ReferenceModels : public testing::TestWithParam<Model> {};

TEST_P(ReferenceModels, TheReferenceComputesWhatTheModelsOwnCodeDoes) {
  Example example(GetParam());
  for (const ParallelLayout& ranks : layouts(GetParam())) {
    std::vector<double> sum(example.output.size());
    for (int rank = 0; rank < ranks.tp * ranks.ep; ++rank) {
      const Status added = example.add_reference({ranks.tp, ranks.ep, rank}, sum);
      ASSERT_TRUE(added.ok()) << added.error().message;
    }
    example.expect_close(sum, 1e-6, fmt::format("tp{}_ep{}", ranks.tp, ranks.ep));
  }
}

TEST_P(ReferenceModels, AServedLayerComputesWhatTheModelsOwnCodeDoes) {
  Example example(GetParam());
  for (const ParallelLayout& ranks : layouts(GetParam())) {
    std::vector<double> sum(example.output.size());
    for (int rank = 0; rank < ranks.tp * ranks.ep; ++rank) {
      const Status added = example.add_layer({ranks.tp, ranks.ep, rank}, sum);
      if (!added.ok() && added.error().code == ErrorCode::kUnsupported)
        GTEST_SKIP() << added.error().message;
      ASSERT_TRUE(added.ok()) << added.error().message;
    }
    // Sums in f32 move a value of h over a rounding boundary now and then (verify.h).
    example.expect_close(sum, 6e-4, fmt::format("tp{}_ep{}", ranks.tp, ranks.ep));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceModels,
                         testing::Values(Model{"qwen3_moe"}, Model{"qwen3_moe_fp8", 0, 2},
                                         Model{"qwen3_moe_nvfp4"}, Model{"mixtral"},
                                         Model{"deepseek_v3", 1}, Model{"glm4_moe", 1},
                                         Model{"gpt_oss"}, Model{"gpt_oss_mxfp4"}, Model{"olmoe"},
                                         Model{"granitemoe"}),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace moetune

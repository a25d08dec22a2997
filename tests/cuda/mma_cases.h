// Specifications and helpers that the tests of cuda.mma share.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cuda/mma/space.h"
#include "moetune/moe_spec.h"

namespace moetune::cuda {

inline constexpr WeightFormat kAllFormats[] = {WeightFormat::kBf16,  WeightFormat::kFp16,
                                               WeightFormat::kFp8,   WeightFormat::kFp8Block,
                                               WeightFormat::kNvfp4, WeightFormat::kMxfp4};

struct MmaCase {
  std::string name;
  FusedMoeSpec spec;
};

inline FusedMoeSpec mma_spec(int64_t hidden, int64_t intermediate, int64_t experts, int top_k,
                             WeightFormat format) {
  FusedMoeSpec spec;
  spec.hidden = hidden;
  spec.intermediate = intermediate;
  spec.experts = spec.global_experts = experts;
  spec.top_k = top_k;
  spec.weights = format;
  return spec;
}

/// Real layers, as one rank of 8 where the name says so.
inline std::vector<MmaCase> model_cases(WeightFormat format) {
  std::vector<MmaCase> cases = {
      {"glm-5 tp8", mma_spec(6144, 256, 256, 8, format)},
      {"qwen3-30b-a3b", mma_spec(2048, 768, 128, 8, format)},
      {"mixtral-8x7b", mma_spec(4096, 14336, 8, 2, format)},
      {"gpt-oss-20b tp8", mma_spec(2880, 352, 32, 4, format)},
      {"kimi-k2", mma_spec(7168, 2048, 384, 8, format)},
  };
  cases[0].spec.router = {.score = Score::kSigmoid, .selection_bias = true, .scale = 2.5f};
  cases[3].spec.activation = Activation::kSwiGluClamped;
  cases[3].spec.bias = true;
  cases[3].spec.router.score_after_top_k = true;
  return cases;
}

/// Awkward sizes: none is a multiple of what kernels like. All activations, biases, groups, f32
/// output, several ranks.
inline std::vector<MmaCase> odd_cases(WeightFormat format) {
  std::vector<MmaCase> cases = {
      {"96/40 of 12", mma_spec(96, 40, 12, 3, format)},
      {"178/50 clamped, biases", mma_spec(178, 50, 8, 4, format)},
      {"1408/176 relu2, f32", mma_spec(1408, 176, 8, 4, format)},
      {"1856/96 groups", mma_spec(1856, 96, 16, 4, format)},
      {"320/192 second rank of two", mma_spec(320, 192, 8, 6, format)},
      {"128/64 two shared experts", mma_spec(128, 64, 10, 3, format)},
  };
  cases[1].spec.activation = Activation::kSwiGluClamped;
  cases[1].spec.bias = true;
  cases[2].spec.activation = Activation::kRelu2;
  cases[2].spec.output = DataType::kF32;
  cases[3].spec.router = {
      .score = Score::kSigmoid, .selection_bias = true, .groups = 4, .top_groups = 2};
  cases[4].spec.global_experts = 16;
  cases[4].spec.ep = 2;
  cases[5].spec.shared_experts = 2;
  if (format == WeightFormat::kFp8Block) {  // 300: a short last block, and rows that are copied
    cases.push_back({"300/200 rounded activations", mma_spec(300, 200, 8, 3, format)});
    cases.push_back({"256/256 rounded activations", mma_spec(256, 256, 8, 3, format)});
    for (size_t i : {6, 7}) cases[i].spec.activations = ActivationFormat::kFp8Block;
  }
  return cases;
}

/// `count` allowed points of a space, or fewer where there are not so many; the same ones for the
/// same seed.
inline std::vector<Tactic> sample_points(const Space& space, int64_t tokens, int count,
                                         uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tactic> points;
  for (int tries = 0; tries < 4000 && static_cast<int>(points.size()) < count; ++tries) {
    Tactic point =
        space.point(static_cast<int64_t>(random() % static_cast<uint64_t>(space.product_size())));
    if (space.why_excluded(point, tokens).empty()) points.push_back(std::move(point));
  }
  return points;
}

/// How many points of each stage are tried: MOETUNE_MMA_POINTS, or `usual`.
inline int points_per_stage(int usual) {
  const char* text = std::getenv("MOETUNE_MMA_POINTS");
  return text == nullptr ? usual : std::max(1, std::atoi(text));
}

/// What GEMM 1 (0) or GEMM 2 (1) of a specification is to its kernel.
inline GemmRole role_of(const FusedMoeSpec& spec, const WeightLayout& layout, int stage) {
  if (stage == 0)
    return {&layout.w13, layout.epilogue, static_cast<int>((spec.hidden + 7) / 8 * 8), false};
  return {&layout.w2, kernels::kIdentity, layout.activation_columns, spec.output == DataType::kF32};
}

}  // namespace moetune::cuda

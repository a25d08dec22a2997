// The fused Mixture-of-Experts operator: what is computed, apart from how. The full definition is
// in docs/operator.md.
//
// Per token: route (top-k experts and their weights, from router logits or given), then for each
// chosen expert e
//   h = activation(x · w13[e]ᵀ)        w13 [experts, 2·intermediate, hidden], rows = gate then up
//   y = h · w2[e]ᵀ                      w2  [experts, hidden, intermediate]
// and output = Σ weight · y over the chosen experts, in the order of the token's top-k slots, and
// then over the shared experts, whose weight is 1.
// Numbers: products are accumulated in f32; h is rounded to bf16, and then x and h to the
// activation format; the weighted sum is accumulated in f32 and rounded once to the output type.
//
// Arguments of one call (T tokens, G = global_experts, k = top_k), dense and row-major, in this
// order:
//   hidden        bf16 [T, hidden]
//   logits        f32  [T, G]        unless given_routing
//   router_bias   f32  [G]           unless given_routing, and only with router.selection_bias
//   topk_ids      i32  [T, k]        only with given_routing: global ids, -1 is skipped
//   topk_weights  f32  [T, k]        only with given_routing
//   activation_scales  f32 [2]       only with fp8 activations: of x and of h, positive
//   first_expert  i32  [1]           only where ep > 1: the global id of this rank's expert 0
//   output        bf16 or f32 [T, hidden], as FusedMoeSpec::output says
// A token's repeated ids add up. An id outside [first_expert, first_expert + experts) is another
// rank's work and adds nothing here.
//
// Weights come one expert at a time, WeightSource::chunk(local id), R = w13_rows(), the shared ones
// after those that are routed to, each in this order:
//   w13           [R, hidden]: bf16, f16 (fp16), e4m3 (fp8, fp8-block) or codes e2m1x2 (nvfp4,
//                 mxfp4)
//   w13_scales    nvfp4: e4m3 [R, ceil(hidden / 16)]; mxfp4: ue8m0 [R, ceil(hidden / 32)];
//                 fp8-block: f32 [gates * ceil(intermediate / 128), ceil(hidden / 128)], gates = 2
//                 (gate's blocks, then up's, whose first row begins a block of its own) or 1
//   w13_global    f32 [2]: of gate rows, of up rows         nvfp4, fp8
//   w2            [hidden, intermediate], the type of w13
//   w2_scales     nvfp4: e4m3 [hidden, ceil(intermediate / 16)]; mxfp4: ue8m0
//                 [hidden, ceil(intermediate / 32)]; fp8-block: f32 [ceil(hidden / 128),
//                 ceil(intermediate / 128)]
//   w2_global     f32 [1]                                   nvfp4, fp8
//   w13_bias      f32  [R], added to x · w13ᵀ                 only with `bias`
//   w2_bias       f32  [hidden], added to y                  only with `bias`
// All scales multiply: a weight is code · scale · global, of those that its format has. A row of k
// 4-bit codes is k / 2 bytes. The last block of a row, or of a column, may be short; scales are
// linear. A w13 without a gate uses w13_global[1].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "moetune/result.h"
#include "moetune/tensor.h"

namespace moetune {

enum class WeightFormat : uint8_t { kBf16, kFp16, kFp8, kFp8Block, kNvfp4, kMxfp4 };
/// What activations, x and h, are rounded to before they enter the GEMMs.
enum class ActivationFormat : uint8_t {
  kA16,  ///< bf16
  /// e4m3 times a scale of each 128 values along k: amax / 448, or 1. With fp8-block weights only.
  kFp8Block,
  /// e4m3 times one scale for every x, and one for every h, which are given: static scales a
  /// tensor. What is beyond 448 of them saturates. With fp8 weights only.
  kFp8,
};
enum class Score : uint8_t { kSoftmax, kSigmoid, kSqrtSoftplus };

enum class Activation : uint8_t {
  kSwiGlu,         ///< silu(gate) * up
  kSwiGluClamped,  ///< gpt-oss: g' = min(g, 7), u' = clamp(u, -7, 7), g'·sigmoid(1.702 g')·(u' + 1)
  kRelu2,          ///< relu(x)², no gate: w13 has `intermediate` rows
  kGatePlusUp,     ///< gate + up: linear, for the exact check of a kernel's arithmetic
};

/// How a token's logits become k experts and their weights. ops/moe/router.h has the definition
/// step by step.
struct RouterSpec {
  Score score = Score::kSoftmax;
  bool selection_bias = false;  ///< A bias per expert that changes who is chosen, not the weights.
  int groups = 1;               ///< Experts form this many equal groups; ...
  int top_groups = 1;  ///< ... this many survive, by the sum of their two best biased scores.
  bool score_after_top_k = false;  ///< Top-k of the logits first, the score over the k chosen ones.
  bool renormalise = true;         ///< Weights sum to 1 before `scale`.
  float scale = 1.0f;              ///< routed_scaling_factor

  bool operator==(const RouterSpec&) const = default;
};

/// One rank's share of one layer. Two specifications are the same problem exactly when they compare
/// equal.
struct FusedMoeSpec {
  int64_t hidden = 0;          ///< Values in one token's hidden state.
  int64_t intermediate = 0;    ///< Rows of gate (and of up) held by this rank.
  int64_t experts = 0;         ///< Experts held by this rank.
  int64_t global_experts = 0;  ///< Experts the router chooses from; equals `experts` where ep is 1.
  int top_k = 0;
  /// Experts that every token visits with weight 1, of the same sizes as the others. Only where ep
  /// is 1: which of several ranks would run them is the caller's affair.
  int shared_experts = 0;
  WeightFormat weights = WeightFormat::kBf16;
  ActivationFormat activations = ActivationFormat::kA16;
  DataType output = DataType::kBf16;  ///< kBf16 or kF32.
  Activation activation = Activation::kSwiGlu;
  RouterSpec router;
  bool bias = false;           ///< Biases on both GEMMs.
  bool given_routing = false;  ///< Top-k ids and weights are inputs, and no router is part of it.
  int tp = 1;                  ///< Tensor-parallel degree that `intermediate` is the result of.
  int ep = 1;                  ///< Expert-parallel degree that `experts` is the result of.

  bool operator==(const FusedMoeSpec&) const = default;

  /// Whether w13 has gate rows before its up rows.
  bool gated() const { return activation != Activation::kRelu2; }
  /// Experts that a token visits, and those whose weights this rank holds.
  int slots() const { return top_k + shared_experts; }
  int64_t held_experts() const { return experts + shared_experts; }
  /// Rows of w13 of one expert: 2·intermediate, or intermediate where the activation has no gate.
  int64_t w13_rows() const { return gated() ? 2 * intermediate : intermediate; }
};

/// The largest sizes that validate() lets pass: beyond any model, and small enough that no product
/// of them overflows.
inline constexpr int64_t kMaxMoeDimension = int64_t{1} << 18;
inline constexpr int64_t kMaxMoeExperts = 4096;
inline constexpr int kMaxMoeTopK = 128;
inline constexpr int kMaxMoeGroups = 128;
inline constexpr int kMaxMoeShared = 16;

/// kInvalidArgument with the first thing that is wrong (a size out of range, top_k > experts,
/// groups that do not divide, ...). hidden and intermediate may be any positive size, odd ones too;
/// with 4-bit weights they must be even (two codes a byte), but need not be multiples of the
/// format's block: the last block of a row is then short.
Status validate(const FusedMoeSpec& spec);

/// Names as they are written on the command line and in files: "nvfp4", "swiglu", "softmax", ...
const char* to_string(WeightFormat format);
const char* to_string(ActivationFormat format);
const char* to_string(Activation activation);
const char* to_string(Score score);
std::optional<WeightFormat> parse_weight_format(std::string_view text);
std::optional<ActivationFormat> parse_activation_format(std::string_view text);
std::optional<Activation> parse_activation(std::string_view text);
std::optional<Score> parse_score(std::string_view text);

/// Bytes of one expert's weights (w13 and w2, all their scales included, biases not) in
/// `spec.weights`, before any packing. The specification must be valid.
int64_t expert_weight_bytes(const FusedMoeSpec& spec);

}  // namespace moetune

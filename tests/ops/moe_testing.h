// What the operator's tests share: small specifications, weights from lists of numbers, and a
// kernel simple enough to be trusted and to be broken on purpose.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "base/f16.h"
#include "moetune/moe_spec.h"
#include "moetune/runner.h"
#include "ops/moe/arguments.h"
#include "ops/moe/number_formats.h"
#include "ops/moe/weights.h"

namespace moetune::testing_moe {

inline FusedMoeSpec small_spec(WeightFormat format = WeightFormat::kBf16) {
  return {.hidden = 96,
          .intermediate = 40,
          .experts = 12,
          .global_experts = 12,
          .top_k = 3,
          .weights = format};
}

inline std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  std::transform(values.begin(), values.end(), std::back_inserter(bits), float_to_bf16);
  return bits;
}

/// bf16 weights of several experts, given as numbers.
class ListedWeights final : public WeightSource {
 public:
  struct Expert {
    std::vector<float> w13, w2, w13_bias, w2_bias;
  };
  ListedWeights(const FusedMoeSpec& spec, std::vector<Expert> experts)
      : spec_(spec), experts_(std::move(experts)) {}

  int64_t chunks() const override { return static_cast<int64_t>(experts_.size()); }
  Result<Tensors> chunk(int64_t index) override {
    Expert& expert = experts_.at(static_cast<size_t>(index));
    w13_ = to_bf16(expert.w13);
    w2_ = to_bf16(expert.w2);
    Tensors tensors = {{"w13", DataType::kBf16, {spec_.w13_rows(), spec_.hidden}, w13_.data()},
                       {"w2", DataType::kBf16, {spec_.hidden, spec_.intermediate}, w2_.data()}};
    if (spec_.bias) {
      tensors.push_back({"w13_bias", DataType::kF32, {spec_.w13_rows()}, expert.w13_bias.data()});
      tensors.push_back({"w2_bias", DataType::kF32, {spec_.hidden}, expert.w2_bias.data()});
    }
    return tensors;
  }

 private:
  FusedMoeSpec spec_;
  std::vector<Expert> experts_;
  std::vector<uint16_t> w13_, w2_;
};

inline constexpr WeightFormat kWeightFormats[] = {WeightFormat::kBf16,  WeightFormat::kFp16,
                                                  WeightFormat::kFp8,   WeightFormat::kFp8Block,
                                                  WeightFormat::kNvfp4, WeightFormat::kMxfp4};

/// Value (row, col) of a matrix whose rows are `part_rows` of gate, then as many of up; or all.
/// Global scale left out.
inline float plain_value(WeightFormat format, const void* values, const void* scales, int64_t row,
                         int64_t col, int64_t k, int64_t part_rows) {
  const auto* bytes = static_cast<const uint8_t*>(values);
  const auto* halves = static_cast<const uint16_t*>(values);
  const auto* scale_bytes = static_cast<const uint8_t*>(scales);
  const auto code = [&] { return kE2M1Values[packed_e2m1(bytes + row * (k / 2), col)]; };
  switch (format) {
    case WeightFormat::kBf16: return bf16_to_float(halves[row * k + col]);
    case WeightFormat::kFp16: return f16_to_float(halves[row * k + col]);
    case WeightFormat::kFp8: return e4m3_to_float(bytes[row * k + col]);
    case WeightFormat::kFp8Block: {
      const int64_t block_row = row / part_rows * ((part_rows + 127) / 128) + row % part_rows / 128;
      return e4m3_to_float(bytes[row * k + col]) *
             static_cast<const float*>(scales)[block_row * ((k + 127) / 128) + col / 128];
    }
    case WeightFormat::kNvfp4:
      return code() * e4m3_to_float(scale_bytes[row * ((k + 15) / 16) + col / 16]);
    case WeightFormat::kMxfp4:
      return code() * ue8m0_to_float(scale_bytes[row * ((k + 31) / 32) + col / 32]);
  }
  return 0;
}

/// One expert's weights as plain numbers, global scales included: [w13_rows, hidden], [hidden,
/// intermediate].
inline ListedWeights::Expert plain_weights(const FusedMoeSpec& spec, WeightSource& source,
                                           int64_t expert) {
  const Tensors chunk = source.chunk(expert).value();
  const ExpertWeights view = view_expert(spec, chunk).value();
  ListedWeights::Expert result;
  for (int64_t row = 0; row < spec.w13_rows(); ++row) {
    const bool gate = spec.gated() && row < spec.intermediate;
    for (int64_t col = 0; col < spec.hidden; ++col)
      result.w13.push_back(plain_value(spec.weights, view.w13, view.w13_scales, row, col,
                                       spec.hidden, spec.intermediate) *
                           (gate ? view.gate_global : view.up_global));
  }
  for (int64_t row = 0; row < spec.hidden; ++row) {
    for (int64_t col = 0; col < spec.intermediate; ++col)
      result.w2.push_back(plain_value(spec.weights, view.w2, view.w2_scales, row, col,
                                      spec.intermediate, spec.hidden) *
                          view.down_global);
  }
  if (spec.bias) {
    result.w13_bias.assign(view.w13_bias, view.w13_bias + spec.w13_rows());
    result.w2_bias.assign(view.w2_bias, view.w2_bias + spec.hidden);
  }
  return result;
}

/// How the kernel below sums, and what it may do wrong.
struct KernelOptions {
  size_t lanes = 1;  ///< Partial sums of a dot product: another order of additions for each number.
  bool fp8_sums = false;        ///< Sums as Hopper's tensor cores make them of products of e4m3.
  bool rounds_gate_up = false;  ///< To bf16, as kernels of serving engines do.
  bool weights_before_gemm2 = false;  ///< Applies routing weights to h before it is rounded: not
                                      ///< the definition, but defensible.
  std::function<void(int64_t expert, ListedWeights::Expert&)> spoil_weights;
  std::function<void(int64_t token, std::vector<std::pair<int64_t, float>>& slots)> spoil_routing;
};

inline float dot_f32(const float* a, const float* b, size_t k, size_t lanes) {
  std::vector<float> sums(lanes);
  for (size_t i = 0; i < k; ++i) sums[i % lanes] += a[i] * b[i];
  float sum = 0;
  for (float lane : sums) sum += lane;
  return sum;
}

/// 32 products at a time are brought to the exponent of the largest of them and of the sum so far,
/// and cut off 13 bits below it; 128 later the sum goes to f32.
inline float dot_fp8(const float* a, const float* b, size_t k) {
  constexpr size_t kStep = 32;
  constexpr size_t kBlock = 128;
  constexpr int kBits = 13;
  float total = 0;
  double sum = 0;
  for (size_t first = 0; first < k; first += kStep) {
    const size_t last = std::min(first + kStep, k);
    double largest = std::abs(sum);
    for (size_t i = first; i < last; ++i)
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) * b[i]));
    if (largest > 0) {
      const double unit = std::ldexp(1.0, std::ilogb(largest) - kBits);
      sum = std::trunc(sum / unit);
      for (size_t i = first; i < last; ++i)
        sum += std::trunc(static_cast<double>(a[i]) * b[i] / unit);
      sum *= unit;
    }
    if (last % kBlock != 0 && last != k) continue;
    total += static_cast<float>(sum);
    sum = 0;
  }
  return total;
}

inline float activate_f32(Activation activation, float gate, float up) {
  switch (activation) {
    case Activation::kSwiGlu: return gate / (1 + std::exp(-gate)) * up;
    case Activation::kSwiGluClamped: {
      const float g = std::min(gate, 7.0f);
      return g / (1 + std::exp(-1.702f * g)) * (std::clamp(up, -7.0f, 7.0f) + 1);
    }
    case Activation::kRelu2: return std::max(up, 0.0f) * std::max(up, 0.0f);
    case Activation::kGatePlusUp: return gate + up;
  }
  return 0;
}

/// To the activation format, block by block or under the given scale.
inline void round_activations_f32(const FusedMoeSpec& spec, float given,
                                  std::vector<float>& values) {
  if (spec.activations == ActivationFormat::kA16) return;
  if (spec.activations == ActivationFormat::kFp8) {
    for (float& value : values) value = e4m3_to_float(float_to_e4m3(value / given)) * given;
    return;
  }
  for (size_t first = 0; first < values.size(); first += 128) {
    const size_t last = std::min(first + 128, values.size());
    float largest = 0;
    for (size_t i = first; i < last; ++i) largest = std::max(largest, std::abs(values[i]));
    const float scale = largest == 0 ? 1 : largest / 448;
    for (size_t i = first; i < last; ++i)
      values[i] = e4m3_to_float(float_to_e4m3(values[i] / scale)) * scale;
  }
}

/// The whole output [tokens, hidden] as f32, before its last rounding: sums in f32, h in bf16, as a
/// kernel does it. Routing is inputs.routing's.
inline std::vector<float> run_kernel(const FusedMoeSpec& spec, WeightSource& source,
                                     const MoeInputs& inputs, const KernelOptions& options = {}) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const auto intermediate = static_cast<size_t>(spec.intermediate);
  const auto k = static_cast<size_t>(spec.top_k);
  std::vector<ListedWeights::Expert> experts;
  for (int64_t e = 0; e < spec.held_experts(); ++e) {
    experts.push_back(plain_weights(spec, source, e));
    if (options.spoil_weights) options.spoil_weights(e, experts.back());
  }
  std::vector<float> output(static_cast<size_t>(inputs.routing.tokens) * hidden);
  std::vector<float> x(hidden);
  std::vector<float> h(intermediate);
  for (size_t token = 0; token < static_cast<size_t>(inputs.routing.tokens); ++token) {
    std::transform(&inputs.hidden[token * hidden], &inputs.hidden[token * hidden] + hidden,
                   x.begin(), bf16_to_float);
    round_activations_f32(spec, inputs.activation_scales[0], x);
    std::vector<std::pair<int64_t, float>> slots;
    for (size_t i = token * k; i < (token + 1) * k; ++i)
      slots.emplace_back(inputs.routing.ids[i], inputs.routing.weights[i]);
    for (int64_t e = spec.experts; e < spec.held_experts(); ++e) slots.emplace_back(e, 1.0f);
    if (options.spoil_routing) options.spoil_routing(static_cast<int64_t>(token), slots);
    for (const auto& [id, weight] : slots) {
      const int64_t local = id - inputs.first_expert;
      if (id < 0 || local < 0 || local >= spec.held_experts()) continue;
      const ListedWeights::Expert& w = experts[static_cast<size_t>(local)];
      const size_t first_up = spec.gated() ? intermediate : 0;
      const auto dot = [&](const float* a, const float* b, size_t count) {
        return options.fp8_sums ? dot_fp8(a, b, count) : dot_f32(a, b, count, options.lanes);
      };
      const auto w13_row = [&](size_t row) {
        const float sum =
            dot(&w.w13[row * hidden], x.data(), hidden) + (spec.bias ? w.w13_bias[row] : 0.0f);
        return options.rounds_gate_up ? round_to_bf16(sum) : sum;
      };
      for (size_t i = 0; i < intermediate; ++i) {
        const float value =
            activate_f32(spec.activation, spec.gated() ? w13_row(i) : 0.0f, w13_row(first_up + i));
        h[i] = round_to_bf16(options.weights_before_gemm2 ? value * weight : value);
      }
      round_activations_f32(spec, inputs.activation_scales[1], h);
      for (size_t i = 0; i < hidden; ++i) {
        const float y = dot(&w.w2[i * intermediate], h.data(), intermediate) +
                        (spec.bias ? w.w2_bias[i] : 0.0f);
        output[token * hidden + i] += options.weights_before_gemm2 ? y : weight * y;
      }
    }
  }
  return output;
}

/// The values in the output type: the memory of a tensor [rows, hidden].
struct OutputRows {
  OutputRows(const FusedMoeSpec& spec, const std::vector<float>& values)
      : f32(values), bf16(to_bf16(values)), tensor{"output", spec.output, {}, nullptr} {
    tensor.shape = {static_cast<int64_t>(values.size()) / spec.hidden, spec.hidden};
    tensor.data = spec.output == DataType::kBf16 ? static_cast<void*>(bf16.data()) : f32.data();
  }
  OutputRows(const OutputRows&) = delete;
  OutputRows& operator=(const OutputRows&) = delete;

  std::vector<float> f32;
  std::vector<uint16_t> bf16;
  Tensor tensor;
};

inline std::vector<int64_t> all_tokens(const MoeInputs& inputs) {
  std::vector<int64_t> tokens(static_cast<size_t>(inputs.routing.tokens));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i);
  return tokens;
}

}  // namespace moetune::testing_moe

#include "cpu/layer_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/moe/reference.h"

namespace moetune::cpu {

float from_bf16(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// Through f32, as the operator's definition has it: sums are f32, and those are rounded.
uint16_t to_bf16(double value) {
  const float rounded = static_cast<float>(value);
  uint32_t word;
  std::memcpy(&word, &rounded, sizeof(word));
  return static_cast<uint16_t>((word + 0x7FFF + (word >> 16 & 1)) >> 16);
}

FusedMoeSpec small_spec(int64_t hidden, int64_t intermediate, int64_t experts, int top_k,
                        WeightFormat format, Activation activation) {
  FusedMoeSpec spec;
  spec.hidden = hidden;
  spec.intermediate = intermediate;
  spec.experts = spec.global_experts = experts;
  spec.top_k = top_k;
  spec.weights = format;
  spec.activation = activation;
  spec.output = DataType::kF32;
  spec.given_routing = true;
  return spec;
}

FusedMoeSpec with_bias(FusedMoeSpec spec) {
  spec.bias = true;
  return spec;
}

LayerCase::LayerCase(const FusedMoeSpec& spec, int64_t tokens, DataKind kind, uint32_t seed)
    : spec_(spec), source_(make_random_weights(spec, kind, seed).value()), tokens_(tokens) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const bool exact = kind == DataKind::kExact;
  for (int64_t i = 0; i < tokens * spec.hidden; ++i)
    hidden_.push_back(to_bf16(exact ? (random() % 2 == 0 ? 1 : -1) : normal(random)));
  for (int64_t i = 0; i < tokens * spec.top_k; ++i) {
    // Expert 0 gets nothing, expert 1 more than its share; ids repeat within a token, and some
    // slots are skipped.
    const int64_t id = static_cast<int64_t>(random() % static_cast<uint32_t>(spec.experts + 2)) - 1;
    ids_.push_back(static_cast<int32_t>(
        id == 0 || id >= spec.experts ? std::min<int64_t>(1, spec.experts - 1) : id));
    weights_.push_back(exact ? 0.5f : static_cast<float>(random() % 1000) / 1000);
  }
}

PanelWeights pack_all(const FusedMoeSpec& spec, WeightSource& source) {
  PanelWeights packed = PanelWeights::allocate(spec).value();
  ThreadPool pool({-1, -1});
  for (int64_t e = 0; e < spec.experts; ++e)
    EXPECT_TRUE(packed.pack(e, source.chunk(e).value(), pool).ok());
  return packed;
}

const PanelWeights& LayerCase::packed() {
  if (!is_packed_) packed_ = pack_all(spec_, *source_);
  is_packed_ = true;
  return packed_;
}

LayerInputs LayerCase::inputs(int64_t tokens, void* output) const {
  return {.tokens = tokens,
          .hidden = hidden_.data(),
          .ids = ids_.data(),
          .weights = weights_.data(),
          .output = output};
}

std::vector<std::vector<float>> LayerCase::reference(const std::vector<int64_t>& tokens) {
  const Tensors arguments = {
      {"hidden", DataType::kBf16, {tokens_, spec_.hidden}, hidden_.data()},
      {"topk_ids", DataType::kI32, {tokens_, spec_.top_k}, ids_.data()},
      {"topk_weights", DataType::kF32, {tokens_, spec_.top_k}, weights_.data()},
      {"output", spec_.output, {tokens_, spec_.hidden}, nullptr}};
  const ReferenceRows rows = reference_rows(spec_, *source_, arguments, tokens).value();
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto first = rows.values.begin() + static_cast<int64_t>(i) * spec_.hidden;
    out.emplace_back(first, first + spec_.hidden);
  }
  return out;
}

std::vector<float> run_f32(LayerCase& layer, int64_t tokens, const LayerTactic& tactic,
                           const KernelTable& kernels, ThreadPool& pool) {
  constexpr size_t kGuard = 256;
  const auto bytes =
      static_cast<size_t>(workspace_bytes(layer.spec(), tokens, tactic, kernels, pool.size()));
  Buffer workspace = Buffer::allocate(bytes + 2 * kGuard).value();
  std::fill_n(workspace.data(), workspace.bytes(), uint8_t{0xA5});
  std::vector<float> output(static_cast<size_t>(tokens * layer.spec().hidden), std::nanf(""));
  const Status status = run_layer(layer.packed(), layer.inputs(tokens, output.data()), tactic,
                                  kernels, pool, workspace.data() + kGuard);
  EXPECT_TRUE(status.ok());
  for (size_t i = 0; i < kGuard; ++i)
    if (workspace.data()[i] != 0xA5 || workspace.data()[kGuard + bytes + i] != 0xA5) {
      ADD_FAILURE() << "byte " << i
                    << " of a guard around the workspace was written: " << to_string(tactic.gemm1);
      break;
    }
  return output;
}

}  // namespace moetune::cpu

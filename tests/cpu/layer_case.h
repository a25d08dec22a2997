// One small MoE layer with random data, its packed weights, and its result by the operator's
// reference.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cpu/layer.h"
#include "cpu/panel_weights.h"
#include "moetune/moe_spec.h"
#include "ops/moe/weights.h"

namespace moetune::cpu {

inline constexpr WeightFormat kEveryFormat[] = {WeightFormat::kBf16,  WeightFormat::kFp16,
                                                WeightFormat::kFp8,   WeightFormat::kFp8Block,
                                                WeightFormat::kNvfp4, WeightFormat::kMxfp4};

/// Routing is given, output is f32.
FusedMoeSpec small_spec(int64_t hidden, int64_t intermediate, int64_t experts, int top_k,
                        WeightFormat format, Activation activation);

FusedMoeSpec with_bias(FusedMoeSpec spec);

class LayerCase {
 public:
  /// kExact is exact for kGatePlusUp and kRelu2.
  LayerCase(const FusedMoeSpec& spec, int64_t tokens, DataKind kind, uint32_t seed);

  const FusedMoeSpec& spec() const { return spec_; }
  /// Packed on first use.
  const PanelWeights& packed();
  /// Of the first `tokens` tokens; `output` is the caller's.
  LayerInputs inputs(int64_t tokens, void* output) const;
  std::vector<int32_t>& ids() { return ids_; }
  std::vector<uint16_t>& hidden() { return hidden_; }

  /// The output rows of some tokens before they are rounded to the output type.
  std::vector<std::vector<float>> reference(const std::vector<int64_t>& tokens);

 private:
  FusedMoeSpec spec_;
  std::unique_ptr<WeightSource> source_;
  int64_t tokens_;
  std::vector<uint16_t> hidden_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  PanelWeights packed_;
  bool is_packed_ = false;
};

/// Every expert of a source.
PanelWeights pack_all(const FusedMoeSpec& spec, WeightSource& source);

/// Runs the layer with f32 (or bf16) output and a workspace between guards, and checks the guards.
std::vector<float> run_f32(LayerCase& layer, int64_t tokens, const LayerTactic& tactic,
                           const KernelTable& kernels, ThreadPool& pool);

float from_bf16(uint16_t bits);
uint16_t to_bf16(double value);

}  // namespace moetune::cpu

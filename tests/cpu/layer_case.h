// One small MoE layer with random data, its packed weights, and its result by the definition in
// f64.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "cpu/layer.h"
#include "cpu/panel_weights.h"
#include "moetune/moe_spec.h"

namespace moetune::cpu {

/// What the random numbers look like: `kClose` like a model's; `kExact` so that all products and
/// sums are exact in f32, whatever their order.
enum class Values { kClose, kExact };

/// Rows of one matrix as checkpoints hold them.
struct RawMatrix {
  int64_t rows = 0;
  int64_t k = 0;
  std::vector<uint8_t> values;
  std::vector<uint8_t> scales;
  float multiplier = 1.f;
};

struct RawExpert {
  RawMatrix gate;
  RawMatrix up;
  RawMatrix down;

  ExpertWeights view() const;
};

FusedMoeSpec small_spec(int64_t hidden, int64_t intermediate, int64_t experts, int top_k,
                        WeightFormat format, Activation activation);

class LayerCase {
 public:
  LayerCase(const FusedMoeSpec& spec, int64_t tokens, Values values, uint32_t seed);

  const FusedMoeSpec& spec() const { return spec_; }
  const std::vector<RawExpert>& experts() const { return experts_; }
  /// Packed on first use.
  const PanelWeights& packed();
  /// Of the first `tokens` tokens; `output` is the caller's.
  LayerInputs inputs(int64_t tokens, void* output) const;
  std::vector<int32_t>& ids() { return ids_; }
  std::vector<uint16_t>& hidden() { return hidden_; }

  /// The output row of one token before it is rounded to the output type.
  std::vector<double> reference(int64_t token) const;

 private:
  RawMatrix random_matrix(int64_t rows, int64_t k, Values values);
  double weight(const RawMatrix& matrix, int64_t row, int64_t k) const;
  std::vector<double> expert_row(const RawExpert& expert, int64_t token) const;

  FusedMoeSpec spec_;
  std::mt19937 random_;
  std::vector<RawExpert> experts_;
  std::vector<uint16_t> hidden_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  PanelWeights packed_;
  bool is_packed_ = false;
};

/// Runs the layer with f32 (or bf16) output and a workspace between guards, and checks the guards.
std::vector<float> run_f32(LayerCase& layer, int64_t tokens, const LayerTactic& tactic,
                           const KernelTable& kernels, ThreadPool& pool);

float from_bf16(uint16_t bits);
uint16_t to_bf16(double value);

}  // namespace moetune::cpu

#include "cpu/layer_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace moetune::cpu {
namespace {

constexpr double kFp4[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double from_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

double activate(Activation kind, double gate, double up) {
  switch (kind) {
    case Activation::kSwiGlu: return gate / (1 + std::exp(-gate)) * up;
    case Activation::kSwiGluClamped: {
      const double g = std::min(gate, 7.0);
      const double u = std::clamp(up, -7.0, 7.0);
      return g / (1 + std::exp(-1.702 * g)) * (u + 1);
    }
    case Activation::kRelu2: return up > 0 ? up * up : 0;
    case Activation::kGatePlusUp: return gate + up;
  }
  return 0;
}

}  // namespace

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

ExpertWeights RawExpert::view() const {
  return {gate.values.data(), up.values.data(), down.values.data(),
          gate.scales.data(), up.scales.data(), down.scales.data(),
          gate.multiplier,    up.multiplier,    down.multiplier};
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
  return spec;
}

RawMatrix LayerCase::random_matrix(int64_t rows, int64_t k, Values values) {
  RawMatrix matrix;
  matrix.rows = rows;
  matrix.k = k;
  std::normal_distribution<double> normal(0, 1 / std::sqrt(static_cast<double>(k)));
  if (spec_.weights == WeightFormat::kBf16) {
    matrix.values.resize(static_cast<size_t>(2 * rows * k));
    for (int64_t i = 0; i < rows * k; ++i) {
      const uint16_t bits =
          to_bf16(values == Values::kClose ? normal(random_) : static_cast<int>(random_() % 3) - 1);
      std::memcpy(&matrix.values[static_cast<size_t>(2 * i)], &bits, sizeof(bits));
    }
    return matrix;
  }
  matrix.values.resize(static_cast<size_t>(rows * ((k + 1) / 2)));
  matrix.scales.resize(static_cast<size_t>(rows * ((k + 15) / 16)));
  // Exact: codes 0, ±0.5, ±1 and scales 1 and 2. Close: any code; scales from subnormal to a few.
  for (uint8_t& byte : matrix.values)
    byte = values == Values::kClose
               ? static_cast<uint8_t>(random_())
               : static_cast<uint8_t>(random_() % 3 | (random_() % 2) << 3 | (random_() % 3) << 4 |
                                      (random_() % 2) << 7);
  if (k % 2 != 0)
    for (int64_t row = 0; row < rows; ++row)
      matrix.values[static_cast<size_t>((row + 1) * ((k + 1) / 2) - 1)] &= 0x0F;
  for (uint8_t& scale : matrix.scales)
    scale = values == Values::kExact ? (random_() % 2 != 0 ? 0x38 : 0x40)
            : random_() % 16 == 0    ? static_cast<uint8_t>(random_() % 8)
                                     : static_cast<uint8_t>(0x30 + random_() % 24);
  matrix.multiplier =
      values == Values::kExact ? 0.5f : static_cast<float>(0.3 / std::sqrt(static_cast<double>(k)));
  return matrix;
}

LayerCase::LayerCase(const FusedMoeSpec& spec, int64_t tokens, Values values, uint32_t seed)
    : spec_(spec), random_(seed) {
  for (int64_t e = 0; e < spec.experts; ++e) {
    RawExpert expert;
    if (spec.gated()) expert.gate = random_matrix(spec.intermediate, spec.hidden, values);
    expert.up = random_matrix(spec.intermediate, spec.hidden, values);
    expert.down = random_matrix(spec.hidden, spec.intermediate, values);
    // Gate and up have factors of their own.
    if (spec.weights == WeightFormat::kNvfp4) expert.gate.multiplier *= 2;
    experts_.push_back(std::move(expert));
  }
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < tokens * spec.hidden; ++i)
    hidden_.push_back(
        to_bf16(values == Values::kClose ? normal(random_) : static_cast<int>(random_() % 17) - 8));
  for (int64_t i = 0; i < tokens * spec.top_k; ++i) {
    // Expert 0 gets nothing, expert 1 more than its share; ids repeat within a token, and some
    // slots are skipped.
    const int64_t id =
        static_cast<int64_t>(random_() % static_cast<uint32_t>(spec.experts + 2)) - 1;
    ids_.push_back(static_cast<int32_t>(
        id == 0 || id >= spec.experts ? std::min<int64_t>(1, spec.experts - 1) : id));
    weights_.push_back(values == Values::kClose ? static_cast<float>(random_() % 1000) / 1000
                                                : 0.5f);
  }
}

const PanelWeights& LayerCase::packed() {
  if (!is_packed_) {
    packed_ = PanelWeights::allocate(spec_).value();
    for (size_t e = 0; e < experts_.size(); ++e)
      EXPECT_TRUE(packed_.pack(static_cast<int64_t>(e), experts_[e].view()));
    is_packed_ = true;
  }
  return packed_;
}

LayerInputs LayerCase::inputs(int64_t tokens, void* output) const {
  return {tokens, hidden_.data(), ids_.data(), weights_.data(), output};
}

double LayerCase::weight(const RawMatrix& matrix, int64_t row, int64_t k) const {
  if (spec_.weights == WeightFormat::kBf16) {
    uint16_t bits;
    std::memcpy(&bits, &matrix.values[static_cast<size_t>(2 * (row * matrix.k + k))], sizeof(bits));
    return from_bf16(bits);
  }
  const uint8_t byte = matrix.values[static_cast<size_t>(row * ((matrix.k + 1) / 2) + k / 2)];
  const int code = k % 2 == 0 ? byte & 15 : byte >> 4;
  const double scale =
      from_e4m3(matrix.scales[static_cast<size_t>(row * ((matrix.k + 15) / 16) + k / 16)]);
  return (code < 8 ? kFp4[code] : -kFp4[code - 8]) * scale * matrix.multiplier;
}

std::vector<double> LayerCase::expert_row(const RawExpert& expert, int64_t token) const {
  const uint16_t* x = hidden_.data() + token * spec_.hidden;
  std::vector<double> h(static_cast<size_t>(spec_.intermediate));
  for (int64_t i = 0; i < spec_.intermediate; ++i) {
    double gate = 0;
    double up = 0;
    for (int64_t k = 0; k < spec_.hidden; ++k) {
      if (spec_.gated()) gate += weight(expert.gate, i, k) * from_bf16(x[k]);
      up += weight(expert.up, i, k) * from_bf16(x[k]);
    }
    h[static_cast<size_t>(i)] = from_bf16(to_bf16(activate(spec_.activation, gate, up)));
  }
  std::vector<double> y(static_cast<size_t>(spec_.hidden));
  for (int64_t i = 0; i < spec_.hidden; ++i)
    for (int64_t k = 0; k < spec_.intermediate; ++k)
      y[static_cast<size_t>(i)] += weight(expert.down, i, k) * h[static_cast<size_t>(k)];
  return y;
}

std::vector<double> LayerCase::reference(int64_t token) const {
  std::vector<double> output(static_cast<size_t>(spec_.hidden));
  for (int slot = 0; slot < spec_.top_k; ++slot) {
    const auto index = static_cast<size_t>(token * spec_.top_k + slot);
    if (ids_[index] < 0) continue;
    const std::vector<double> y = expert_row(experts_[static_cast<size_t>(ids_[index])], token);
    for (size_t i = 0; i < y.size(); ++i) output[i] += static_cast<double>(weights_[index]) * y[i];
  }
  return output;
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

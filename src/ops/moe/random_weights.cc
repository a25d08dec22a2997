#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bf16.h"
#include "base/status_macros.h"
#include "ops/moe/number_formats.h"
#include "ops/moe/streams.h"
#include "ops/moe/weights.h"

namespace moetune {

namespace {

// What an expert's random streams are for: each use of each part has one.
enum Part : uint64_t { kGate, kUp, kDown, kBias, kParts };
enum Use : uint64_t { kValues, kScales, kShift, kUses };

// What the matrices of one GEMM are drawn from. The tables not of the weights' format stay empty
// (zero).
struct Distribution {
  RandomTable<uint16_t> bf16{};
  RandomTable<uint8_t> code_pairs{};
  RandomTable<uint8_t> scales{};
  float global = 1;
};

// ---- Realistic ----

// Scales as quantising normal weights gives them: 64 to 320 where the largest possible is 448. One
// in 256 is any other, from zero over the subnormals to 448, as in weights that were pruned or have
// outliers.
RandomTable<uint8_t> realistic_scales() {
  constexpr uint8_t kLeast = 0x68;  // 64
  constexpr size_t kUsual = 19;     // up to 0x7A, 320
  RandomTable<uint8_t> table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<uint8_t>(i % 256 == 0 ? i / 256 * 0x7E / 15 : kLeast + i % kUsual);
  }
  return table;
}

Distribution realistic(WeightFormat format, double deviation) {
  Distribution d;
  if (format == WeightFormat::kBf16) {
    d.bf16 = normal_bf16_table(static_cast<float>(deviation));
    return d;
  }
  double code_squares = 0;
  for (float value : kE2M1Values) code_squares += value * value / kE2M1Values.size();
  d.scales = realistic_scales();
  double scale_squares = 0;
  for (uint8_t bits : d.scales)
    scale_squares += std::pow(e4m3_to_float(bits), 2) / static_cast<double>(d.scales.size());
  d.global = static_cast<float>(deviation / std::sqrt(code_squares * scale_squares));
  // All pairs of codes, equally often.
  for (size_t i = 0; i < d.code_pairs.size(); ++i) d.code_pairs[i] = static_cast<uint8_t>(i);
  return d;
}

// ---- Exact ----

// Entries of a table, of 4096, that are to be other than zero for `nonzero` such values in a row of
// k: enough to hold every value.
size_t nonzero_entries(double nonzero, int64_t k) {
  const double share = std::min(1.0, nonzero / static_cast<double>(k));
  return std::max<size_t>(static_cast<size_t>(std::lround(share * 4096)), 16);
}

RandomTable<uint16_t> sparse_integers(size_t nonzero) {
  constexpr std::array<float, 6> kValues = {1, -1, 2, -2, 3, -3};
  RandomTable<uint16_t> table{};
  for (size_t i = 0; i < nonzero; ++i) table[i] = float_to_bf16(kValues[i % kValues.size()]);
  return table;
}

// Every code in turn in `nonzero` of the low nibbles, and of the high ones; an entry's other half
// of bits decides the high one, so that the two are independent.
RandomTable<uint8_t> sparse_codes(size_t nonzero) {
  RandomTable<uint8_t> table;
  for (size_t i = 0; i < table.size(); ++i) {
    const size_t swapped = (i % 64) * 64 + i / 64;
    const size_t low = i < nonzero ? i % 16 : 0;
    const size_t high = swapped < nonzero ? swapped % 16 : 0;
    table[i] = static_cast<uint8_t>(low | high << 4);
  }
  return table;
}

// How many weights of a row are not zero. Bounds what GEMM 1 gives, so that h is mostly exact in
// bf16 (where it is not, it is at least rounded alike by everybody, its f32 value being exact), and
// that no sum comes near 2^24 units of its last place.
constexpr double kExactNonzeroBf16 = 64;
constexpr double kExactNonzeroNvfp4 = 32;
constexpr double kExactNonzeroDown = 256;

Distribution exact(WeightFormat format, double nonzero, int64_t k) {
  Distribution d;
  if (format == WeightFormat::kBf16) {
    d.bf16 = sparse_integers(nonzero_entries(nonzero, k));
  } else {
    d.code_pairs = sparse_codes(nonzero_entries(nonzero, k));
  }
  return d;
}

// Block scales 1, 2 and 3 times 2^shift: from the smallest subnormal at -9 to 384 at 7.
RandomTable<uint8_t> exact_scales(int shift) {
  RandomTable<uint8_t> table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = float_to_e4m3(std::ldexp(static_cast<float>(1 + i % 3), shift));
  }
  return table;
}

int exact_shift(Random& random) { return static_cast<int>(random.below(17)) - 9; }

// ---- The source ----

class RandomWeights final : public WeightSource {
 public:
  RandomWeights(const FusedMoeSpec& spec, DataKind kind, uint64_t seed)
      : spec_(spec), kind_(kind), seed_(seed) {
    const auto h = static_cast<double>(spec.hidden);
    const auto i = static_cast<double>(spec.intermediate);
    if (kind == DataKind::kRealistic) {
      // x·w13 has a deviation of 1 then; after the activation it is about 0.6, which w2 makes up
      // for.
      w13_ = realistic(spec.weights, 1 / std::sqrt(h));
      w2_ = realistic(spec.weights, 1.7 / std::sqrt(i));
    } else {
      const double nonzero =
          spec.weights == WeightFormat::kBf16 ? kExactNonzeroBf16 : kExactNonzeroNvfp4;
      // relu² squares what comes out: a quarter of the terms makes half of the deviation.
      w13_ = exact(spec.weights, spec.gated() ? nonzero : nonzero / 4, spec.hidden);
      w2_ = exact(spec.weights, kExactNonzeroDown, spec.intermediate);
    }
  }

  int64_t chunks() const override { return spec_.experts; }

  Result<Tensors> chunk(int64_t index) override {
    if (index < 0 || index >= spec_.experts) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("expert {} of {} was asked for", index, spec_.experts)};
    }
    expert_ = static_cast<uint64_t>(index);
    Tensors tensors;
    if (spec_.weights == WeightFormat::kBf16) {
      make_bf16(tensors);
    } else {
      make_nvfp4(tensors);
    }
    if (spec_.bias) make_biases(tensors);
    return tensors;
  }

 private:
  Random random(Part part, Use use = kValues) const {
    return random_stream(seed_, RandomUse::kWeights, (expert_ * kParts + part) * kUses + use);
  }

  void make_bf16(Tensors& tensors) {
    w13_values_.resize(static_cast<size_t>(spec_.w13_rows() * spec_.hidden));
    w2_values_.resize(static_cast<size_t>(spec_.hidden * spec_.intermediate));
    const size_t half = spec_.gated() ? w13_values_.size() / 2 : 0;
    fill(kGate, w13_.bf16, std::span(w13_values_).first(half));
    fill(kUp, w13_.bf16, std::span(w13_values_).subspan(half));
    fill(kDown, w2_.bf16, std::span(w2_values_));
    tensors.push_back(
        {"w13", DataType::kBf16, {spec_.w13_rows(), spec_.hidden}, w13_values_.data()});
    tensors.push_back(
        {"w2", DataType::kBf16, {spec_.hidden, spec_.intermediate}, w2_values_.data()});
  }

  void make_nvfp4(Tensors& tensors) {
    const int64_t w13_blocks = nvfp4_blocks(spec_.hidden);
    const int64_t w2_blocks = nvfp4_blocks(spec_.intermediate);
    w13_codes_.resize(static_cast<size_t>(spec_.w13_rows() * (spec_.hidden / 2)));
    w2_codes_.resize(static_cast<size_t>(spec_.hidden * (spec_.intermediate / 2)));
    w13_scales_.resize(static_cast<size_t>(spec_.w13_rows() * w13_blocks));
    w2_scales_.resize(static_cast<size_t>(spec_.hidden * w2_blocks));
    const size_t half_codes = spec_.gated() ? w13_codes_.size() / 2 : 0;
    const size_t half_scales = spec_.gated() ? w13_scales_.size() / 2 : 0;
    fill(kGate, w13_.code_pairs, std::span(w13_codes_).first(half_codes));
    fill(kUp, w13_.code_pairs, std::span(w13_codes_).subspan(half_codes));
    fill(kDown, w2_.code_pairs, std::span(w2_codes_));
    globals_[0] = fill_scales(kGate, w13_, std::span(w13_scales_).first(half_scales));
    globals_[1] = fill_scales(kUp, w13_, std::span(w13_scales_).subspan(half_scales));
    globals_[2] = fill_scales(kDown, w2_, w2_scales_);
    tensors.push_back(
        {"w13", DataType::kE2M1x2, {spec_.w13_rows(), spec_.hidden}, w13_codes_.data()});
    tensors.push_back(
        {"w13_scales", DataType::kF8E4M3, {spec_.w13_rows(), w13_blocks}, w13_scales_.data()});
    tensors.push_back({"w13_global", DataType::kF32, {2}, &globals_[0]});
    tensors.push_back(
        {"w2", DataType::kE2M1x2, {spec_.hidden, spec_.intermediate}, w2_codes_.data()});
    tensors.push_back(
        {"w2_scales", DataType::kF8E4M3, {spec_.hidden, w2_blocks}, w2_scales_.data()});
    tensors.push_back({"w2_global", DataType::kF32, {1}, &globals_[2]});
  }

  void make_biases(Tensors& tensors) {
    w13_bias_.resize(static_cast<size_t>(spec_.w13_rows()));
    w2_bias_.resize(static_cast<size_t>(spec_.hidden));
    Random draw = random(kBias);
    for (std::vector<float>* bias : {&w13_bias_, &w2_bias_}) {
      for (float& value : *bias)
        value = kind_ == DataKind::kExact ? std::round(2 * draw.normal()) : 0.25f * draw.normal();
    }
    tensors.push_back({"w13_bias", DataType::kF32, {spec_.w13_rows()}, w13_bias_.data()});
    tensors.push_back({"w2_bias", DataType::kF32, {spec_.hidden}, w2_bias_.data()});
  }

  template <typename T>
  void fill(Part part, const RandomTable<T>& table, std::span<T> out) const {
    Random draw = random(part);
    fill_random(draw, table, out);
  }

  // Returns the global scale. Gate's and up's always differ, so that a kernel which takes the wrong
  // one shows.
  float fill_scales(Part part, const Distribution& distribution, std::span<uint8_t> out) const {
    Random draw = random(part, kScales);
    if (kind_ == DataKind::kRealistic) {
      fill_random(draw, distribution.scales, out);
      return distribution.global * (part == kUp ? 1.25f : 1.0f);
    }
    Random gate_draw = random(kGate, kShift);
    int shift = exact_shift(gate_draw);
    if (part != kGate) {
      Random own_draw = random(part, kShift);
      const int gate_shift = shift;
      do shift = exact_shift(own_draw);
      while (shift == gate_shift);
    }
    fill_random(draw, exact_scales(shift), out);
    return std::ldexp(1.0f, -shift);
  }

  const FusedMoeSpec spec_;
  const DataKind kind_;
  const uint64_t seed_;
  Distribution w13_;
  Distribution w2_;
  uint64_t expert_ = 0;
  std::vector<uint16_t> w13_values_, w2_values_;
  std::vector<uint8_t> w13_codes_, w13_scales_, w2_codes_, w2_scales_;
  std::array<float, 3> globals_{};
  std::vector<float> w13_bias_, w2_bias_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> make_random_weights(const FusedMoeSpec& spec, DataKind kind,
                                                          uint64_t seed) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  if (spec.weights != WeightFormat::kBf16 && spec.weights != WeightFormat::kNvfp4) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("no random weights in {}", to_string(spec.weights)),
                 "use bf16 or nvfp4"};
  }
  return std::unique_ptr<WeightSource>(std::make_unique<RandomWeights>(spec, kind, seed));
}

}  // namespace moetune

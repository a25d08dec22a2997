#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bf16.h"
#include "base/f16.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "ops/moe/format.h"
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
  RandomTable<uint16_t> halves{};  // bf16 or f16
  RandomTable<uint8_t> bytes{};    // e4m3, or pairs of e2m1
  RandomTable<uint8_t> scales{};
  float global = 1;  // fp8-block: what a block's scale is about
};

// ---- Realistic ----

// Scales as quantising normal weights gives them: 64 to 320 where the largest possible is 448. One
// in 256 is any other, from zero over the subnormals to 448, as in weights that were pruned or have
// outliers.
RandomTable<uint8_t> realistic_e4m3_scales() {
  constexpr uint8_t kLeast = 0x68;  // 64
  constexpr size_t kUsual = 19;     // up to 0x7A, 320
  RandomTable<uint8_t> table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<uint8_t>(i % 256 == 0 ? i / 256 * 0x7E / 15 : kLeast + i % kUsual);
  }
  return table;
}

// Two neighbouring powers of two whose mean square is `square`. One in 256 is far smaller, as of a
// block of zeros or nearly so.
RandomTable<uint8_t> realistic_ue8m0_scales(double square) {
  const int exponent = static_cast<int>(std::floor(std::log2(square) / 2));
  const double larger = (square / std::pow(4.0, exponent) - 1) / 3;
  RandomTable<uint8_t> table;
  for (size_t i = 0; i < table.size(); ++i) {
    const bool upper = static_cast<double>(i * 0x9E5 % 4096) < larger * 4096;
    const int usual = exponent + (upper ? 1 : 0);
    table[i] =
        static_cast<uint8_t>(127 + (i % 256 == 0 ? usual - static_cast<int>(i / 256) * 4 : usual));
  }
  return table;
}

double mean_square_of_e2m1() {
  double sum = 0;
  for (float value : kE2M1Values) sum += value * value / kE2M1Values.size();
  return sum;
}

// All pairs of codes, equally often.
RandomTable<uint8_t> uniform_code_pairs() {
  RandomTable<uint8_t> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i);
  return table;
}

Distribution realistic(WeightFormat format, double deviation) {
  Distribution d;
  switch (format) {
    case WeightFormat::kBf16: d.halves = normal_bf16_table(static_cast<float>(deviation)); break;
    case WeightFormat::kFp16:
      std::transform(normal_quantiles().begin(), normal_quantiles().end(), d.halves.begin(),
                     [&](float x) { return float_to_f16(x * static_cast<float>(deviation)); });
      break;
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block: {
      const float scale = quantise_fp8(normal_quantiles(), d.bytes.data());
      d.global = scale * static_cast<float>(deviation);
      break;
    }
    case WeightFormat::kNvfp4: {
      d.scales = realistic_e4m3_scales();
      double scale_squares = 0;
      for (uint8_t bits : d.scales)
        scale_squares += std::pow(e4m3_to_float(bits), 2) / static_cast<double>(d.scales.size());
      d.global = static_cast<float>(deviation / std::sqrt(mean_square_of_e2m1() * scale_squares));
      d.bytes = uniform_code_pairs();
      break;
    }
    case WeightFormat::kMxfp4:
      d.scales = realistic_ue8m0_scales(deviation * deviation / mean_square_of_e2m1());
      d.bytes = uniform_code_pairs();
      break;
  }
  return d;
}

// ---- Exact ----

// Entries of a table, of 4096, that are to be other than zero for `nonzero` such values in a row of
// k: enough to hold every value.
size_t nonzero_entries(double nonzero, int64_t k) {
  const double share = std::min(1.0, nonzero / static_cast<double>(k));
  return std::max<size_t>(static_cast<size_t>(std::lround(share * 4096)), 16);
}

template <typename T, typename Encode>
RandomTable<T> sparse_integers(size_t nonzero, Encode encode) {
  constexpr std::array<float, 6> kIntegers = {1, -1, 2, -2, 3, -3};
  RandomTable<T> table{};
  for (size_t i = 0; i < nonzero; ++i) table[i] = encode(kIntegers[i % kIntegers.size()]);
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
constexpr double kExactNonzeroIntegers = 64;
constexpr double kExactNonzeroCodes = 32;
constexpr double kExactNonzeroDown = 256;

bool has_codes(WeightFormat format) { return format_parts(format).values == DataType::kE2M1x2; }

// Small numbers times 2^shift; what undoes the shift are scales.
Distribution exact(WeightFormat format, double nonzero, int64_t k, int shift) {
  const size_t entries = nonzero_entries(nonzero, k);
  Distribution d;
  switch (format) {
    case WeightFormat::kBf16: d.halves = sparse_integers<uint16_t>(entries, float_to_bf16); break;
    case WeightFormat::kFp16: d.halves = sparse_integers<uint16_t>(entries, float_to_f16); break;
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block:
      d.bytes = sparse_integers<uint8_t>(
          entries, [shift](float x) { return float_to_e4m3(std::ldexp(x, shift)); });
      break;
    case WeightFormat::kNvfp4:
      // Block scales 1, 2 and 3.
      for (size_t i = 0; i < d.scales.size(); ++i)
        d.scales[i] = float_to_e4m3(std::ldexp(static_cast<float>(1 + i % 3), shift));
      [[fallthrough]];
    case WeightFormat::kMxfp4: d.bytes = sparse_codes(entries); break;
  }
  return d;
}

// With them, 1 to 3 as e4m3 reach from the smallest subnormal at -9 to 384 at 7.
constexpr int kLeastShift = -9;
constexpr int kShifts = 17;
int random_shift(Random& random) { return static_cast<int>(random.below(kShifts)) + kLeastShift; }

// ---- The source ----

class RandomWeights final : public WeightSource {
 public:
  RandomWeights(const FusedMoeSpec& spec, DataKind kind, uint64_t seed, int threads)
      : spec_(spec), kind_(kind), seed_(seed), threads_(threads), tensors_(expert_tensors(spec)) {
    for (Tensor& tensor : tensors_) {
      storage_.emplace_back(ceil_div(static_cast<int64_t>(tensor.bytes()), 4));
      tensor.data = storage_.back().data();
    }
    const auto h = static_cast<double>(spec.hidden);
    const auto i = static_cast<double>(spec.intermediate);
    if (kind == DataKind::kRealistic) {
      // x·w13 has a deviation of 1 then; after the activation it is about 0.6, which w2 makes up
      // for.
      w13_ = {realistic(spec.weights, 1 / std::sqrt(h))};
      w2_ = {realistic(spec.weights, 1.7 / std::sqrt(i))};
      return;
    }
    const double nonzero = has_codes(spec.weights) ? kExactNonzeroCodes : kExactNonzeroIntegers;
    for (int shift = kLeastShift; shift < kLeastShift + kShifts; ++shift) {
      // relu² squares what comes out: a quarter of the terms makes half of the deviation.
      w13_.push_back(exact(spec.weights, spec.gated() ? nonzero : nonzero / 4, spec.hidden, shift));
      w2_.push_back(exact(spec.weights, kExactNonzeroDown, spec.intermediate, shift));
    }
  }

  int64_t chunks() const override { return spec_.held_experts(); }

  Result<Tensors> chunk(int64_t index) override {
    if (index < 0 || index >= chunks()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("expert {} of {} was asked for", index, chunks())};
    }
    expert_ = static_cast<uint64_t>(index);
    const int64_t half = spec_.gated() ? spec_.intermediate : 0;
    make_matrix(kGate, {"w13", "w13_scales", "w13_global"}, 0, half, 0, w13_);
    make_matrix(kUp, {"w13", "w13_scales", "w13_global"}, half, spec_.w13_rows(), 1, w13_);
    make_matrix(kDown, {"w2", "w2_scales", "w2_global"}, 0, spec_.hidden, 0, w2_);
    if (spec_.bias) make_biases();
    return tensors_;
  }

 private:
  struct Names {
    const char* values;
    const char* scales;
    const char* global;
  };

  Random random(Part part, Use use = kValues) const {
    return random_stream(seed_, RandomUse::kWeights, (expert_ * kParts + part) * kUses + use);
  }

  const Tensor* tensor(const char* name) const { return find(tensors_, name); }

  // Rows [first, last) of a tensor: gate's, up's or all.
  void make_matrix(Part part, const Names& names, int64_t first, int64_t last, int64_t global,
                   const std::vector<Distribution>& shifted) {
    const int shift = kind_ == DataKind::kExact ? part_shift(part) : kLeastShift;
    const Distribution& distribution = shifted[static_cast<size_t>(shift - kLeastShift)];
    const Tensor& values = *tensor(names.values);
    const int64_t k = values.shape[1];
    if (spec_.weights == WeightFormat::kFp8Block) {
      make_fp8_blocks(part, names, first, last, shifted);
      return;
    }
    Random draw = random(part);
    const int64_t bytes = row_bytes(spec_.weights, k);
    if (bits_per_value(values.type) == 16) {
      fill_random(draw, distribution.halves, rows<uint16_t>(values, first, last, k), threads_);
    } else {
      fill_random(draw, distribution.bytes, rows<uint8_t>(values, first, last, bytes), threads_);
    }
    if (const Tensor* scales = tensor(names.scales)) {
      Random scale_draw = random(part, kScales);
      const auto out = rows<uint8_t>(*scales, first, last, scales->shape[1]);
      fill_random(scale_draw,
                  kind_ == DataKind::kExact && spec_.weights == WeightFormat::kMxfp4
                      ? mxfp4_exact_scales(part)
                      : distribution.scales,
                  out);
    }
    // Gate's and up's differ, so that a kernel which takes the wrong one shows; not where kernels
    // that round activations under one scale are to run, which take one for both.
    if (const Tensor* factors = tensor(names.global)) {
      const float up = spec_.activations == ActivationFormat::kFp8 ? 1.0f : 1.25f;
      factors->as<float>()[global] = kind_ == DataKind::kExact
                                         ? std::ldexp(1.0f, -shift)
                                         : distribution.global * (part == kUp ? up : 1.0f);
    }
  }

  template <typename T>
  static std::span<T> rows(const Tensor& tensor, int64_t first, int64_t last, int64_t items) {
    return {tensor.as<T>() + first * items, static_cast<size_t>((last - first) * items)};
  }

  int part_shift(Part part) const {
    Random gate_draw = random(kGate, kShift);
    int shift = random_shift(gate_draw);
    if (part == kGate) return shift;
    Random own_draw = random(part, kShift);
    const int gate_shift = shift;
    do shift = random_shift(own_draw);
    while (shift == gate_shift);
    return shift;
  }

  // Powers of two from 1/2 to 2, times 2^t in w13 and what undoes it in w2: scales from 2^-21 to
  // 2^21. Without a gate w13 has no 1/2: relu² squares the range of what comes out, and h has to
  // stay exact as 15-bit integers too.
  int mxfp4_exponent(Part part) const {
    Random draw = random(kBias, kShift);
    const int t = static_cast<int>(draw.below(21)) - 10;
    return part == kDown ? -2 * t : spec_.gated() ? 2 * t : t;
  }
  RandomTable<uint8_t> mxfp4_exact_scales(Part part) const {
    RandomTable<uint8_t> table;
    const int least = part == kDown || spec_.gated() ? -1 : 0;
    for (int i = 0; i < static_cast<int>(table.size()); ++i)
      table[static_cast<size_t>(i)] =
          static_cast<uint8_t>(127 + mxfp4_exponent(part) + least + i % (2 - least));
    return table;
  }

  // Each block of 128 x 128 has a shift (exact) or a size (realistic) of its own.
  void make_fp8_blocks(Part part, const Names& names, int64_t first, int64_t last,
                       const std::vector<Distribution>& shifted) {
    const Tensor& values = *tensor(names.values);
    const Tensor& scales = *tensor(names.scales);
    const int64_t k = values.shape[1], blocks_k = scales.shape[1];
    Random draw = random(part), block_draw = random(part, kShift);
    const int64_t first_scale_row = part == kUp && first > 0 ? scales.shape[0] / 2 : 0;
    struct Block {
      Random draw;
      const RandomTable<uint8_t>* table;
      int64_t row, rows, begin, width;
    };
    std::vector<Block> blocks;
    for (int64_t row = first; row < last; row += kFp8Block) {
      const int64_t block_rows = std::min(kFp8Block, last - row);
      for (int64_t block = 0; block < blocks_k; ++block) {
        const bool is_exact = kind_ == DataKind::kExact;
        const int shift = is_exact ? random_shift(block_draw) : kLeastShift;
        const Distribution& distribution = shifted[static_cast<size_t>(shift - kLeastShift)];
        const int64_t at = (first_scale_row + (row - first) / kFp8Block) * blocks_k + block;
        scales.as<float>()[at] =
            is_exact
                ? std::ldexp(1.0f, -shift)
                : distribution.global * (0.75f + 0.5f * static_cast<float>(block_draw.uniform()));
        const int64_t begin = block * kFp8Block, width = std::min(kFp8Block, k - begin);
        blocks.push_back({draw, &distribution.bytes, row, block_rows, begin, width});
        draw.skip(static_cast<uint64_t>(block_rows) * draws_to_fill(static_cast<uint64_t>(width)));
      }
    }
    const auto count = static_cast<int64_t>(blocks.size());
    in_parts(threads_, count, [&](int64_t begin, int64_t end) {
      for (Block& block : std::span(blocks).subspan(begin, end - begin)) {
        for (int64_t r = block.row; r < block.row + block.rows; ++r) {
          uint8_t* out = values.as<uint8_t>() + r * k + block.begin;
          fill_random(block.draw, *block.table, std::span(out, static_cast<size_t>(block.width)));
        }
      }
    });
  }

  void make_biases() {
    Random draw = random(kBias);
    // Of the size of what they are added to.
    const bool scaled = kind_ == DataKind::kExact && spec_.weights == WeightFormat::kMxfp4;
    const float unit = scaled ? std::ldexp(1.0f, mxfp4_exponent(kUp)) : 1.0f;
    for (const char* name : {"w13_bias", "w2_bias"}) {
      const Tensor& bias = *tensor(name);
      const float own = std::string_view(name) == "w13_bias" ? unit : 1.0f;
      for (float& value : std::span(bias.as<float>(), static_cast<size_t>(bias.values())))
        value = own *
                (kind_ == DataKind::kExact ? std::round(2 * draw.normal()) : 0.25f * draw.normal());
    }
  }

  const FusedMoeSpec spec_;
  const DataKind kind_;
  const uint64_t seed_;
  const int threads_;
  Tensors tensors_;
  std::vector<std::vector<uint32_t>> storage_;
  std::vector<Distribution> w13_, w2_;  // One for each shift, from kLeastShift on.
  uint64_t expert_ = 0;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> make_random_weights(const FusedMoeSpec& spec, DataKind kind,
                                                          uint64_t seed, int threads) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  return std::unique_ptr<WeightSource>(std::make_unique<RandomWeights>(spec, kind, seed, threads));
}

}  // namespace moetune

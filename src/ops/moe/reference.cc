#include "ops/moe/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/bf16.h"
#include "base/f16.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "ops/moe/arguments.h"
#include "ops/moe/format.h"
#include "ops/moe/number_formats.h"
#include "ops/moe/weights.h"

namespace moetune {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double bf16(double value) { return round_to_bf16(static_cast<float>(value)); }

double activate(Activation activation, double gate, double up, Rounding rounding) {
  if (rounding != Rounding::kDefinition) {
    gate = bf16(gate);
    up = bf16(up);
  }
  switch (activation) {
    case Activation::kSwiGlu: {
      const double activated = gate * sigmoid(gate);
      return (rounding == Rounding::kGateUpActivated ? bf16(activated) : activated) * up;
    }
    case Activation::kSwiGluClamped: {
      const double g = std::min(gate, 7.0);
      const double u = std::clamp(up, -7.0, 7.0);
      return g * sigmoid(1.702 * g) * (u + 1);
    }
    case Activation::kRelu2: return up > 0 ? up * up : 0;
    case Activation::kGatePlusUp: return gate + up;
  }
  return 0;
}

// The two values of every byte of packed fp4 codes, the low nibble's first.
const std::array<std::array<float, 2>, 256>& e2m1_pairs() {
  static const auto table = [] {
    std::array<std::array<float, 2>, 256> pairs;
    for (size_t byte = 0; byte < pairs.size(); ++byte) {
      const auto code = static_cast<uint8_t>(byte);
      pairs[byte] = {kE2M1Values[packed_e2m1(&code, 0)], kE2M1Values[packed_e2m1(&code, 1)]};
    }
    return pairs;
  }();
  return table;
}

// One matrix of one expert [rows, k], global scale left out. Gate's and up's block scales: where
// they are by rows, up's first row begins a block.
struct Matrix {
  WeightFormat format;
  int64_t rows = 0;
  int64_t k = 0;
  int64_t rows_per_part = 0;  // Of gate, or of up; otherwise `rows`.
  const void* values = nullptr;
  const void* scales = nullptr;

  // Row `row` as f64.
  void decode(int64_t row, std::span<double> out) const {
    decode_values(row, out);
    const FormatParts parts = format_parts(format);
    if (!parts.scales) return;
    const int64_t part = row / rows_per_part;
    const int64_t scale_row =
        part * ceil_div(rows_per_part, parts.block_rows) + row % rows_per_part / parts.block_rows;
    const int64_t blocks = ceil_div(k, parts.block_k);
    for (int64_t block = 0; block < blocks; ++block) {
      const double scale = decode_scale(*parts.scales, scale_row * blocks + block);
      const int64_t last = std::min((block + 1) * parts.block_k, k);
      for (int64_t i = block * parts.block_k; i < last; ++i) out[static_cast<size_t>(i)] *= scale;
    }
  }

 private:
  void decode_values(int64_t row, std::span<double> out) const {
    const auto* bytes = static_cast<const uint8_t*>(values) + row * row_bytes(format, k);
    const auto half = [bytes](size_t i) {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, sizeof bits);
      return bits;
    };
    switch (format_parts(format).values) {
      case DataType::kBf16:
        for (size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_float(half(i));
        break;
      case DataType::kF16:
        for (size_t i = 0; i < out.size(); ++i) out[i] = f16_to_float(half(i));
        break;
      case DataType::kF8E4M3:
        for (size_t i = 0; i < out.size(); ++i) out[i] = e4m3_to_float(bytes[i]);
        break;
      default:
        for (size_t i = 0; i < out.size(); i += 2) {
          const auto& pair = e2m1_pairs()[bytes[i / 2]];
          out[i] = pair[0];
          out[i + 1] = pair[1];
        }
    }
  }

  double decode_scale(DataType type, int64_t index) const {
    const auto* bytes = static_cast<const uint8_t*>(scales);
    if (type == DataType::kF8E4M3) return e4m3_to_float(bytes[index]);
    if (type == DataType::kUe8m0) return ue8m0_to_float(bytes[index]);
    return static_cast<const float*>(scales)[index];
  }
};

// Eight sums side by side: the additions of one would wait for each other.
double dot(std::span<const double> a, std::span<const double> b) {
  using Pair [[gnu::vector_size(16)]] = double;
  Pair sums[4] = {};
  size_t i = 0;
  for (; i + 8 <= a.size(); i += 8) {
    for (size_t p = 0; p < 4; ++p) {
      Pair x, y;
      std::memcpy(&x, &a[i + 2 * p], sizeof x);
      std::memcpy(&y, &b[i + 2 * p], sizeof y);
      sums[p] += x * y;
    }
  }
  const Pair all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double sum = all[0] + all[1];
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// x · matrixᵀ for several x at once, in f64.
std::vector<std::vector<double>> multiply(const Matrix& matrix,
                                          const std::vector<std::vector<double>>& xs, int threads) {
  std::vector<std::vector<double>> products(xs.size(),
                                            std::vector<double>(static_cast<size_t>(matrix.rows)));
  in_parts(threads, matrix.rows, [&](int64_t first, int64_t last) {
    std::vector<double> weights(static_cast<size_t>(matrix.k));
    for (int64_t row = first; row < last; ++row) {
      matrix.decode(row, weights);
      for (size_t i = 0; i < xs.size(); ++i)
        products[i][static_cast<size_t>(row)] = dot(xs[i], weights);
    }
  });
  return products;
}

// Rounds to the activation format; `given`: the scale of fp8.
void round_activations(ActivationFormat format, float given, std::vector<double>& values) {
  if (format == ActivationFormat::kA16) return;
  if (format == ActivationFormat::kFp8) {
    for (double& value : values)
      value = e4m3_to_float(float_to_e4m3(static_cast<float>(value) / given)) * double{given};
    return;
  }
  const std::vector<float> plain(values.begin(), values.end());
  std::vector<uint8_t> codes(plain.size());
  for (size_t first = 0; first < plain.size(); first += kFp8Block) {
    const size_t count = std::min<size_t>(kFp8Block, plain.size() - first);
    const double scale = quantise_fp8(std::span(plain).subspan(first, count), &codes[first]);
    for (size_t i = first; i < first + count; ++i) values[i] = e4m3_to_float(codes[i]) * scale;
  }
}

using Rows = std::vector<std::vector<double>>;

// y of one expert for several tokens' hidden states, under each rounding:
// [roundings.size() · xs.size()][hidden], one rounding's after the other's.
Rows expert_outputs(const FusedMoeSpec& spec, const ExpertWeights& expert, const Rows& xs,
                    float h_scale, int threads, std::span<const Rounding> roundings) {
  const auto intermediate = static_cast<size_t>(spec.intermediate);
  const size_t first_up = spec.gated() ? intermediate : 0;
  const auto bias = [](const float* values, size_t row) {
    return values == nullptr ? 0.0 : values[row];
  };

  const Rows products = multiply({spec.weights, spec.w13_rows(), spec.hidden, spec.intermediate,
                                  expert.w13, expert.w13_scales},
                                 xs, threads);
  Rows hs;
  for (const Rounding rounding : roundings) {
    for (const std::vector<double>& product : products) {
      std::vector<double>& h = hs.emplace_back(intermediate);
      for (size_t i = 0; i < intermediate; ++i) {
        const double gate =
            spec.gated() ? product[i] * expert.gate_global + bias(expert.w13_bias, i) : 0;
        const double up =
            product[first_up + i] * expert.up_global + bias(expert.w13_bias, first_up + i);
        h[i] = bf16(activate(spec.activation, gate, up, rounding));
      }
      round_activations(spec.activations, h_scale, h);
    }
  }
  Rows ys = multiply(
      {spec.weights, spec.hidden, spec.intermediate, spec.hidden, expert.w2, expert.w2_scales}, hs,
      threads);
  for (std::vector<double>& y : ys) {
    for (size_t i = 0; i < y.size(); ++i)
      y[i] = y[i] * expert.down_global + bias(expert.w2_bias, i);
  }
  return ys;
}

std::vector<ReferenceSlot> slots_of(const FusedMoeSpec& spec, const MoeArguments& args,
                                    int64_t token) {
  if (!spec.given_routing) {
    const auto experts = static_cast<size_t>(spec.global_experts);
    return reference_route(spec, {args.logits + token * spec.global_experts, experts},
                           {args.router_bias, args.router_bias == nullptr ? 0 : experts});
  }
  std::vector<ReferenceSlot> slots;
  for (int64_t slot = token * spec.top_k; slot < (token + 1) * spec.top_k; ++slot) {
    slots.push_back({args.topk_ids[slot], args.topk_weights[slot]});
  }
  return slots;
}

// One (row, expert) pair that has to be computed, with the weight under which it enters the row. In
// a row's order of slots.
struct Share {
  size_t row;
  double weight;
  Rows ys;  // By rounding.
};

// 0: of x, 1: of h.
float activation_scale(const MoeArguments& args, size_t which) {
  return args.activation_scales == nullptr ? 1 : args.activation_scales[which];
}

std::vector<double> hidden_of(const FusedMoeSpec& spec, const MoeArguments& args, int64_t token) {
  std::vector<double> x(static_cast<size_t>(spec.hidden));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = bf16_to_float(args.hidden[static_cast<size_t>(token * spec.hidden) + i]);
  round_activations(spec.activations, activation_scale(args, 0), x);
  return x;
}

// Computes every share's y, expert by expert.
Status compute_shares(const FusedMoeSpec& spec, WeightSource& weights, const MoeArguments& args,
                      std::span<const int64_t> tokens, int threads,
                      std::span<const Rounding> roundings,
                      const std::map<int64_t, std::vector<size_t>>& by_expert,
                      std::vector<Share>& shares) {
  for (const auto& [expert, members] : by_expert) {
    MOETUNE_ASSIGN_OR_RETURN(const Tensors chunk, weights.chunk(expert));
    MOETUNE_ASSIGN_OR_RETURN(const ExpertWeights view, view_expert(spec, chunk));
    Rows xs;
    for (size_t member : members) xs.push_back(hidden_of(spec, args, tokens[shares[member].row]));
    Rows ys = expert_outputs(spec, view, xs, activation_scale(args, 1), threads, roundings);
    for (size_t i = 0; i < ys.size(); ++i)
      shares[members[i % members.size()]].ys.push_back(std::move(ys[i]));
  }
  return {};
}

}  // namespace

Result<std::vector<ReferenceRows>> reference_rows(const FusedMoeSpec& spec, WeightSource& weights,
                                                  const Tensors& arguments,
                                                  std::span<const int64_t> tokens, int threads,
                                                  std::span<const Rounding> roundings) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  MOETUNE_ASSIGN_OR_RETURN(const MoeArguments args, view_arguments(spec, arguments));
  std::vector<Share> shares;
  std::map<int64_t, std::vector<size_t>> by_expert;
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (tokens[row] < 0 || tokens[row] >= args.tokens) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("fused_moe: reference of token {}, but there are {} tokens",
                               tokens[row], args.tokens)};
    }
    for (const ReferenceSlot& slot : slots_of(spec, args, tokens[row])) {
      const int64_t local = slot.expert - args.first_expert;
      if (slot.expert < 0 || local < 0 || local >= spec.experts) continue;
      by_expert[local].push_back(shares.size());
      shares.push_back({row, slot.weight, {}});
    }
    for (int64_t shared = spec.experts; shared < spec.held_experts(); ++shared) {
      by_expert[shared].push_back(shares.size());
      shares.push_back({row, 1.0, {}});
    }
  }
  MOETUNE_RETURN_IF_ERROR(
      compute_shares(spec, weights, args, tokens, threads, roundings, by_expert, shares));

  const auto hidden = static_cast<size_t>(spec.hidden);
  std::vector<ReferenceRows> references;
  for (size_t rounding = 0; rounding < roundings.size(); ++rounding) {
    std::vector<double> sums(tokens.size() * hidden);
    for (const Share& share : shares) {
      const std::vector<double>& y = share.ys[rounding];
      for (size_t i = 0; i < hidden; ++i) sums[share.row * hidden + i] += share.weight * y[i];
    }
    references.push_back({{tokens.begin(), tokens.end()}, spec.hidden, {sums.begin(), sums.end()}});
  }
  return references;
}

Result<ReferenceRows> reference_rows(const FusedMoeSpec& spec, WeightSource& weights,
                                     const Tensors& arguments, std::span<const int64_t> tokens,
                                     int threads, Rounding rounding) {
  MOETUNE_ASSIGN_OR_RETURN(auto rows, reference_rows(spec, weights, arguments, tokens, threads,
                                                     std::span(&rounding, 1)));
  return std::move(rows.front());
}

Result<std::vector<float>> reference_row(const FusedMoeSpec& spec, WeightSource& weights,
                                         const Tensors& arguments, int64_t token) {
  MOETUNE_ASSIGN_OR_RETURN(ReferenceRows rows,
                           reference_rows(spec, weights, arguments, std::span(&token, 1)));
  return std::move(rows.values);
}

}  // namespace moetune

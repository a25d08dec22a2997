#include "ops/moe/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/integers.h"

namespace moetune {

namespace {

// Gate's blocks of rows come before up's, whose first row begins a block of its own.
int64_t scale_rows(const FormatParts& parts, int64_t matrices, int64_t rows) {
  return matrices * ceil_div(rows / matrices, parts.block_rows);
}

void add_matrix(const FormatParts& parts, const char* const (&names)[3], int64_t matrices,
                int64_t rows, int64_t k, int64_t globals, Tensors& tensors) {
  tensors.push_back({names[0], parts.values, {rows, k}, nullptr});
  if (parts.scales) {
    tensors.push_back({names[1],
                       *parts.scales,
                       {scale_rows(parts, matrices, rows), ceil_div(k, parts.block_k)},
                       nullptr});
  }
  if (parts.has_global) tensors.push_back({names[2], DataType::kF32, {globals}, nullptr});
}

}  // namespace

FormatParts format_parts(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16: return {.values = DataType::kBf16, .scales = {}};
    case WeightFormat::kFp16: return {.values = DataType::kF16, .scales = {}};
    case WeightFormat::kFp8: return {.values = DataType::kF8E4M3, .scales = {}, .has_global = true};
    case WeightFormat::kFp8Block:
      return {
          .values = DataType::kF8E4M3, .scales = DataType::kF32, .block_rows = 128, .block_k = 128};
    case WeightFormat::kNvfp4:
      return {.values = DataType::kE2M1x2,
              .scales = DataType::kF8E4M3,
              .block_k = 16,
              .has_global = true};
    case WeightFormat::kMxfp4:
      return {.values = DataType::kE2M1x2, .scales = DataType::kUe8m0, .block_k = 32};
  }
  return {};
}

int64_t row_bytes(WeightFormat format, int64_t k) {
  return ceil_div(k * bits_per_value(format_parts(format).values), 8);
}

Status check_activation_scales(std::span<const float> scales) {
  const auto is_good = [](float scale) { return std::isfinite(scale) && scale > 0; };
  if (scales.size() == 2 && std::all_of(scales.begin(), scales.end(), is_good)) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("activation_scales are [{}]: fp8 activations take two, of x and of h, "
                           "both positive",
                           fmt::join(scales, ", "))};
}

Tensors expert_tensors(const FusedMoeSpec& spec) {
  const FormatParts parts = format_parts(spec.weights);
  Tensors tensors;
  add_matrix(parts, {"w13", "w13_scales", "w13_global"}, spec.gated() ? 2 : 1, spec.w13_rows(),
             spec.hidden, 2, tensors);
  add_matrix(parts, {"w2", "w2_scales", "w2_global"}, 1, spec.hidden, spec.intermediate, 1,
             tensors);
  if (spec.bias) {
    tensors.push_back({"w13_bias", DataType::kF32, {spec.w13_rows()}, nullptr});
    tensors.push_back({"w2_bias", DataType::kF32, {spec.hidden}, nullptr});
  }
  return tensors;
}

}  // namespace moetune

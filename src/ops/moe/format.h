// What the weight formats are made of: the one table that says which tensors an expert's weights
// have, of which types, and how many values share a scale.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/tensor.h"

namespace moetune {

/// A weight is code · scale · global, of those that the format has.
struct FormatParts {
  DataType values = DataType::kBf16;
  std::optional<DataType> scales;  ///< One for block_rows x block_k values, linear.
  int64_t block_rows = 1;
  int64_t block_k = 1;      ///< The last block of a row, or of a column, may be short.
  bool has_global = false;  ///< An f32 each for gate, up and down.
};
FormatParts format_parts(WeightFormat format);

/// Bytes of one row of `k` values, without scales.
int64_t row_bytes(WeightFormat format, int64_t k);

/// Scales of fp8 activations, of x and of h: kInvalidArgument unless there are two, both positive
/// and finite.
Status check_activation_scales(std::span<const float> scales);

/// Whether activations are rounded to codes with scales, and how many scales a row of `k` has
/// beside its codes; where one is given for all, each of them is that.
inline bool rounds_activations(const FusedMoeSpec& spec) {
  return spec.activations != ActivationFormat::kA16;
}
inline constexpr int64_t kActivationBlock = 128;
constexpr int64_t activation_scale_count(int64_t k) {
  return (k + kActivationBlock - 1) / kActivationBlock;
}

/// The tensors of one expert's chunk, in the order of moe_spec.h: names, types and shapes; data is
/// null. The specification must be valid.
Tensors expert_tensors(const FusedMoeSpec& spec);

}  // namespace moetune

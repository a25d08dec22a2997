// moe_weights.h for those who know better names for an expert's parts than its fields'.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "moetune/moe_weights.h"

namespace moetune {

/// Names a part ("gate_scales", ...) of an expert in messages.
using PartName = std::function<std::string(int64_t expert, std::string_view part)>;

/// As weights_from_pointers(), with `name` in its messages, and the code of values that make no
/// sense.
Result<std::unique_ptr<WeightSource>> make_pointer_weights(
    const FusedMoeSpec& spec, ExpertPointersOf pointers_of, PartName name,
    ErrorCode bad_value = ErrorCode::kInvalidArgument);

/// A matrix by rows, columns and the bytes of an element, its strides filled in.
struct Strided {
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t element_bytes = 1;
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  Strided(const MatrixPointer& pointer, int64_t rows, int64_t columns, int64_t element_bytes);

  const std::byte* at(int64_t row, int64_t column) const {
    return data + row * row_stride + column * column_stride;
  }
  int64_t bytes() const { return rows * columns * element_bytes; }
  /// Whether the elements follow each other, row after row.
  bool is_dense() const;
  /// Writes bytes() to `out`, which may have any alignment.
  void copy_to(std::byte* out) const;
};

}  // namespace moetune

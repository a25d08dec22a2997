#include "ops/moe/pointer_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/integers.h"
#include "base/status_macros.h"
#include "ops/moe/bad_codes.h"
#include "ops/moe/format.h"
#include "ops/moe/number_formats.h"

namespace moetune {

namespace {

template <int64_t kBytes>
void copy_strided(const Strided& from, std::byte* out) {
  // In tiles, so that a transposed matrix is not fetched line by line for a value each.
  constexpr int64_t kTile = 64;
  for (int64_t row0 = 0; row0 < from.rows; row0 += kTile) {
    const int64_t row_end = std::min(from.rows, row0 + kTile);
    for (int64_t column0 = 0; column0 < from.columns; column0 += kTile) {
      const int64_t column_end = std::min(from.columns, column0 + kTile);
      for (int64_t row = row0; row < row_end; ++row) {
        for (int64_t column = column0; column < column_end; ++column) {
          std::memcpy(out + (row * from.columns + column) * kBytes, from.at(row, column), kBytes);
        }
      }
    }
  }
}

float scale_value(DataType type, const std::byte* at) {
  if (type == DataType::kF8E4M3) return e4m3_to_float(std::to_integer<uint8_t>(*at));
  if (type == DataType::kUe8m0) return ue8m0_to_float(std::to_integer<uint8_t>(*at));
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

const char* scale_problem(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "infinite";
  return value < 0 ? "negative" : nullptr;
}

/// Whether a row of scales of a byte each is good at a glance: what is not is looked at one by one.
bool is_good_row(DataType type, const Strided& scales, int64_t row) {
  if (scales.element_bytes != 1 || scales.column_stride != 1) return false;
  const auto* first = reinterpret_cast<const uint8_t*>(scales.at(row, 0));
  const uint8_t* last = first + scales.columns;
  if (type == DataType::kUe8m0) return find_bad_ue8m0_scale(first, last) == last;
  return type == DataType::kF8E4M3 && find_bad_e4m3_scale(first, last) == last;
}

/// "[3, 17] is NaN", or nothing.
std::optional<std::string> find_bad_scale(DataType type, const Strided& scales) {
  for (int64_t row = 0; row < scales.rows; ++row) {
    if (is_good_row(type, scales, row)) continue;
    for (int64_t column = 0; column < scales.columns; ++column) {
      const char* problem = scale_problem(scale_value(type, scales.at(row, column)));
      if (problem != nullptr) return fmt::format("[{}, {}] is {}", row, column, problem);
    }
  }
  return std::nullopt;
}

class PointerWeights final : public WeightSource {
 public:
  PointerWeights(const FusedMoeSpec& spec, ExpertPointersOf pointers_of, PartName name,
                 ErrorCode bad_value)
      : spec_(spec),
        parts_(format_parts(spec.weights)),
        layout_(expert_tensors(spec)),
        pointers_of_(std::move(pointers_of)),
        name_(std::move(name)),
        bad_value_(bad_value) {}

  int64_t chunks() const override { return spec_.held_experts(); }

  Result<Tensors> chunk(int64_t index) override {
    if (index < 0 || index >= chunks()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("expert {} of {} was asked for", index, chunks())};
    }
    expert_ = index;
    MOETUNE_ASSIGN_OR_RETURN(const ExpertPointers at, pointers_of_(index));
    Tensors tensors = layout_;
    for (size_t i = 0; i < tensors.size(); ++i) {
      MOETUNE_RETURN_IF_ERROR(place(at, tensors[i], buffers_[i]));
    }
    return tensors;
  }

 private:
  struct Part {
    const char* name;
    MatrixPointer matrix;
    int64_t rows;
  };
  using Parts = std::initializer_list<Part>;
  using Buffer = std::vector<std::byte>;

  Status place(const ExpertPointers& at, Tensor& tensor, Buffer& buffer) {
    const int64_t rows = spec_.intermediate;
    const int64_t scale_rows = ceil_div(spec_.intermediate, parts_.block_rows);
    const auto two = [&](const Part& gate, const Part& up) {
      return spec_.gated() ? place_matrix({gate, up}, tensor, buffer)
                           : place_matrix({up}, tensor, buffer);
    };
    if (tensor.name == "w13") return two({"gate", at.gate, rows}, {"up", at.up, rows});
    if (tensor.name == "w2") return place_matrix({{"down", at.down, spec_.hidden}}, tensor, buffer);
    if (tensor.name == "w13_scales") {
      return two({"gate_scales", at.gate_scales, scale_rows},
                 {"up_scales", at.up_scales, scale_rows});
    }
    if (tensor.name == "w2_scales")
      return place_matrix({{"down_scales", at.down_scales, tensor.shape[0]}}, tensor, buffer);
    if (tensor.name == "w13_global") {
      return place_globals(
          {{"gate_global", spec_.gated() ? at.gate_global : 1}, {"up_global", at.up_global}},
          tensor, buffer);
    }
    if (tensor.name == "w2_global")
      return place_globals({{"down_global", at.down_global}}, tensor, buffer);
    if (tensor.name == "w13_bias") {
      if (!spec_.gated()) return place_bias({{"up_bias", at.up_bias}}, tensor, buffer);
      return place_bias({{"gate_bias", at.gate_bias}, {"up_bias", at.up_bias}}, tensor, buffer);
    }
    if (at.down_bias != nullptr) return place_bias({{"down_bias", at.down_bias}}, tensor, buffer);
    buffer.assign(tensor.bytes(), std::byte{0});
    tensor.data = buffer.data();
    return {};
  }

  Status place_matrix(Parts parts, Tensor& tensor, Buffer& buffer) {
    const bool two_per_byte = tensor.type == DataType::kE2M1x2;
    const int64_t element_bytes = two_per_byte ? 1 : bits_per_value(tensor.type) / 8;
    const int64_t columns = two_per_byte ? tensor.shape[1] / 2 : tensor.shape[1];
    std::vector<Strided> matrices;
    for (const Part& part : parts) {
      if (part.matrix.data == nullptr) return bad(part.name, "is missing");
      matrices.emplace_back(part.matrix, part.rows, columns, element_bytes);
      const bool is_scale = tensor.name.ends_with("_scales");
      if (!is_scale) continue;
      if (const auto problem = find_bad_scale(tensor.type, matrices.back()))
        return bad(part.name, *problem);
    }
    tensor.data = in_place(matrices);
    if (tensor.data != nullptr) return {};
    buffer.resize(tensor.bytes());
    int64_t filled = 0;
    for (const Strided& matrix : matrices) {
      matrix.copy_to(buffer.data() + filled);
      filled += matrix.bytes();
    }
    tensor.data = buffer.data();
    return {};
  }

  /// Where the parts are the tensor already; null where they are not.
  static void* in_place(const std::vector<Strided>& parts) {
    const std::byte* begin = parts.front().data;
    if (reinterpret_cast<uintptr_t>(begin) % static_cast<uintptr_t>(parts.front().element_bytes))
      return nullptr;
    const std::byte* next = begin;
    for (const Strided& part : parts) {
      if (part.data != next || !part.is_dense()) return nullptr;
      next += part.bytes();
    }
    return const_cast<std::byte*>(begin);
  }

  Status place_globals(std::initializer_list<std::pair<const char*, float>> globals, Tensor& tensor,
                       Buffer& buffer) {
    buffer.resize(tensor.bytes());
    std::byte* out = buffer.data();
    for (const auto& [name, value] : globals) {
      if (const char* problem = scale_problem(value))
        return bad(name, fmt::format("is {}", problem));
      std::memcpy(out, &value, sizeof value);
      out += sizeof value;
    }
    tensor.data = buffer.data();
    return {};
  }

  Status place_bias(std::initializer_list<std::pair<const char*, const float*>> biases,
                    Tensor& tensor, Buffer& buffer) {
    const size_t count = static_cast<size_t>(tensor.values()) / biases.size();
    buffer.resize(tensor.bytes());
    std::byte* out = buffer.data();
    for (const auto& [name, values] : biases) {
      if (values == nullptr) return bad(name, "is missing");
      const float* wrong =
          std::find_if_not(values, values + count, [](float v) { return std::isfinite(v); });
      if (wrong != values + count)
        return bad(name, fmt::format("[{}] is NaN or infinite", wrong - values));
      std::memcpy(out, values, count * sizeof(float));
      out += count * sizeof(float);
    }
    tensor.data = buffer.data();
    return {};
  }

  Error bad(const char* part, std::string_view problem) const {
    const bool is_scale = std::string_view(part).find("scales") != std::string_view::npos ||
                          std::string_view(part).find("global") != std::string_view::npos;
    return {bad_value_, fmt::format("{} {}", name_(expert_, part), problem),
            is_scale ? "scales are finite numbers, not negative"
                     : fmt::format("the specification's weights are {}", to_string(spec_.weights))};
  }

  static constexpr size_t kMostTensors = 8;

  const FusedMoeSpec spec_;
  const FormatParts parts_;
  const Tensors layout_;
  const ExpertPointersOf pointers_of_;
  const PartName name_;
  const ErrorCode bad_value_;
  int64_t expert_ = 0;
  std::array<Buffer, kMostTensors> buffers_;  // One for each of layout_, as far as it is needed.
};

}  // namespace

Strided::Strided(const MatrixPointer& pointer, int64_t rows_, int64_t columns_,
                 int64_t element_bytes_)
    : data(static_cast<const std::byte*>(pointer.data)),
      rows(rows_),
      columns(columns_),
      element_bytes(element_bytes_),
      column_stride(pointer.column_stride != 0 ? pointer.column_stride : element_bytes_) {
  row_stride = pointer.row_stride != 0 ? pointer.row_stride : columns * column_stride;
}

bool Strided::is_dense() const {
  return column_stride == element_bytes && (row_stride == columns * element_bytes || rows == 1);
}

void Strided::copy_to(std::byte* out) const {
  if (column_stride == element_bytes) {
    const int64_t row_bytes = columns * element_bytes;
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(out + row * row_bytes, at(row, 0), static_cast<size_t>(row_bytes));
    return;
  }
  if (element_bytes == 1) return copy_strided<1>(*this, out);
  if (element_bytes == 2) return copy_strided<2>(*this, out);
  copy_strided<4>(*this, out);
}

Result<std::unique_ptr<WeightSource>> make_pointer_weights(const FusedMoeSpec& spec,
                                                           ExpertPointersOf pointers_of,
                                                           PartName name, ErrorCode bad_value) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  return std::unique_ptr<WeightSource>(
      std::make_unique<PointerWeights>(spec, std::move(pointers_of), std::move(name), bad_value));
}

Result<std::unique_ptr<WeightSource>> weights_from_pointers(const FusedMoeSpec& spec,
                                                            ExpertPointersOf pointers_of) {
  if (!pointers_of) {
    return Error{ErrorCode::kInvalidArgument, "weights_from_pointers: no function given"};
  }
  return make_pointer_weights(spec, std::move(pointers_of),
                              [](int64_t expert, std::string_view part) {
                                return fmt::format("expert {}: {}", expert, part);
                              });
}

}  // namespace moetune

#include "checkpoint/stored_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/bf16.h"
#include "base/f16.h"

namespace moetune::checkpoint {

std::optional<int64_t> number_bytes(std::string_view type) {
  if (type == "F32") return 4;
  if (type == "BF16" || type == "F16") return 2;
  return std::nullopt;
}

float number_at(std::string_view type, const std::byte* at) {
  if (type == "F32") {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return type == "BF16" ? bf16_to_float(bits) : f16_to_float(bits);
}

std::vector<float> numbers_of(std::string_view type, const Strided& matrix) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column)
      values.push_back(number_at(type, matrix.at(row, column)));
  }
  return values;
}

Result<std::vector<float>> numbers_of(const StoredTensor& tensor, std::vector<int64_t> shape) {
  const std::optional<int64_t> bytes = number_bytes(tensor.type);
  if (!bytes) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}, which is not read as numbers", tensor.text()),
                 "F32, BF16 and F16 are"};
  }
  if (tensor.shape != shape) return unlike(tensor, fmt::format("[{}]", fmt::join(shape, ", ")));
  const auto count = static_cast<int64_t>(tensor.bytes.size()) / *bytes;
  return numbers_of(tensor.type, Strided({tensor.bytes.data()}, 1, count, *bytes));
}

Error unlike(const StoredTensor& tensor, std::string_view wanted) {
  return {ErrorCode::kParse, fmt::format("{}, not {}", tensor.text(), wanted),
          "is this the checkpoint that config.json belongs to?"};
}

}  // namespace moetune::checkpoint

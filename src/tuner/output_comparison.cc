#include "tuner/output_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bf16.h"

namespace moetune {
namespace {

float f16_to_float(uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return exponent == 0 ? sign * std::ldexp(static_cast<float>(mantissa), -24)
                       : sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

float value_at(DataType type, const std::byte* row, int64_t index) {
  if (type == DataType::kF32) {
    float value = 0;
    std::memcpy(&value, row + index * 4, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, row + index * 2, sizeof(bits));
  return type == DataType::kBf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

bool is_floating(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBf16;
}

// What the default makes of infinite or missing numbers, candidates must make of them too.
bool same_non_finite(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || (std::isinf(a) && a == b);
}

struct Row {
  DataType type;
  const std::byte* reference;
  const std::byte* got;
  int64_t values;
};

std::string why_different_values(const Row& row) {
  const OutputTolerance tolerance = output_tolerance(row.type);
  double squares = 0;
  double error_squares = 0;
  double worst = 0;
  for (int64_t i = 0; i < row.values; ++i) {
    const float expected = value_at(row.type, row.reference, i);
    const float found = value_at(row.type, row.got, i);
    if (!std::isfinite(expected) || !std::isfinite(found)) {
      if (same_non_finite(expected, found)) continue;
      return std::isfinite(expected)
                 ? fmt::format("value {} is not finite", i)
                 : fmt::format("value {} is {}, the default's is {}", i, found, expected);
    }
    const double error = std::abs(double{found} - double{expected});
    squares += double{expected} * expected;
    error_squares += error * error;
    worst = std::max(worst, error - tolerance.largest * std::abs(double{expected}));
  }
  const double rms = std::sqrt(squares / static_cast<double>(row.values));
  const double error_rms = std::sqrt(error_squares / static_cast<double>(row.values));
  if (error_rms > tolerance.relative_rms * rms) {
    return fmt::format("relative RMS error {:.2g}, more than {:.2g}",
                       rms > 0 ? error_rms / rms : INFINITY, tolerance.relative_rms);
  }
  if (worst > tolerance.largest * rms) {
    return fmt::format("a value is off by more than {:.2g} of itself and of the row's RMS",
                       tolerance.largest);
  }
  return {};
}

std::string why_different_bits(const Row& row, size_t bytes) {
  const auto [expected, found] =
      std::mismatch(row.reference, row.reference + bytes, row.got, row.got + bytes);
  if (expected == row.reference + bytes) return {};
  return fmt::format("byte {} is {:#04x}, the default's is {:#04x}", expected - row.reference,
                     std::to_integer<int>(*found), std::to_integer<int>(*expected));
}

}  // namespace

OutputTolerance output_tolerance(DataType type) {
  return type == DataType::kF32 ? OutputTolerance{1e-4, 1e-2} : OutputTolerance{5e-3, 5e-2};
}

std::string why_different(const Tensor& reference, const Tensor& got,
                          std::span<const int64_t> rows) {
  if (reference.shape.empty() || reference.shape.front() == 0) return {};
  const auto row_bytes = reference.bytes() / static_cast<size_t>(reference.shape.front());
  const int64_t values = reference.values() / reference.shape.front();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row row{reference.type,
                  reference.as<std::byte>() + static_cast<size_t>(rows[i]) * row_bytes,
                  got.as<std::byte>() + i * row_bytes, values};
    const std::string reason = is_floating(reference.type) ? why_different_values(row)
                                                           : why_different_bits(row, row_bytes);
    if (!reason.empty()) return fmt::format("{} row {}: {}", reference.name, rows[i], reason);
  }
  return {};
}

}  // namespace moetune

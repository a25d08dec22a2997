#include "ops/moe/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/bf16.h"
#include "base/parallel.h"

namespace moetune {

namespace {

// A sum over one row, all in f64.
struct RowErrors {
  double one_minus_cosine = 0;
  double relative_rms = 0;
  double largest_error = 0;
  int64_t worst_column = 0;
  int64_t beyond_limit = 0;
};

float value_at(const Tensor& rows, size_t index) {
  return rows.type == DataType::kBf16 ? bf16_to_float(rows.as<const uint16_t>()[index])
                                      : rows.as<const float>()[index];
}

float rounded_to(DataType type, float value) {
  return type == DataType::kBf16 ? round_to_bf16(value) : value;
}

// The reason why `rows` cannot be what the reference is compared with, or empty.
std::string misfit(const ReferenceRows& reference, const Tensor& rows) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(reference.tokens.size()),
                                      reference.hidden};
  const bool known_type = rows.type == DataType::kBf16 || rows.type == DataType::kF32;
  if (known_type && rows.shape == shape && rows.data != nullptr) return {};
  return fmt::format(
      "output: {} rows of {} bf16 or f32 values are to be checked, and something else came back",
      shape[0], shape[1]);
}

std::string place(const ReferenceRows& reference, size_t index) {
  const auto hidden = static_cast<size_t>(reference.hidden);
  return fmt::format("token {}, column {}", reference.tokens[index / hidden], index % hidden);
}

// Counts what is not finite where the reference is; the reason names the first.
OutputCheck find_non_finite(const ReferenceRows& reference, const Tensor& rows) {
  OutputCheck result;
  // Nearly always there is nothing, which the exponents' bits say at once.
  const auto all_finite = [](auto values, auto exponent) {
    bool finite = true;
    for (auto bits : values) finite &= (bits & exponent) != exponent;
    return finite;
  };
  const size_t count = reference.values.size();
  const bool nothing =
      rows.type == DataType::kBf16
          ? all_finite(std::span(rows.as<const uint16_t>(), count), uint16_t{0x7F80})
          : all_finite(std::span(rows.as<const uint32_t>(), count), uint32_t{0x7F800000});
  if (nothing) return result;
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(value_at(rows, i)) ||
        !std::isfinite(rounded_to(rows.type, reference.values[i])))
      continue;
    if (result.wrong_values++ == 0) {
      result.verdict = {false, fmt::format("output is not finite: {} at {}", value_at(rows, i),
                                           place(reference, i))};
    }
  }
  return result;
}

template <typename Value>
RowErrors compare_row(std::span<const float> reference, const Value* got, DataType type,
                      const CloseLimits& limits) {
  const auto value = [&](size_t column) {
    if constexpr (std::is_same_v<Value, uint16_t>)
      return bf16_to_float(got[column]);
    else
      return got[column];
  };
  // Most candidates agree in every bit.
  bool is_same = true;
  for (size_t c = 0; c < reference.size(); ++c) is_same &= value(c) == reference[c];
  if (is_same) return {};

  double wanted_squares = 0;
  double got_squares = 0;
  double products = 0;
  double error_squares = 0;
  for (size_t c = 0; c < reference.size(); ++c) {
    const double wanted = rounded_to(type, reference[c]);
    const double mine = value(c);
    wanted_squares += wanted * wanted;
    got_squares += mine * mine;
    products += wanted * mine;
    error_squares += (mine - wanted) * (mine - wanted);
  }
  if (error_squares == 0) return {};
  RowErrors errors;
  const double norms = std::sqrt(wanted_squares * got_squares);
  errors.one_minus_cosine = norms > 0 ? 1 - products / norms : 1;
  errors.relative_rms = wanted_squares > 0 ? std::sqrt(error_squares / wanted_squares) : HUGE_VAL;
  const double allowed_everywhere =
      limits.share * std::sqrt(wanted_squares / static_cast<double>(reference.size()));
  for (size_t c = 0; c < reference.size(); ++c) {
    const double wanted = rounded_to(type, reference[c]);
    const double error = std::abs(value(c) - wanted);
    const double allowed = limits.ulps * std::abs(wanted) * 0x1p-8 + allowed_everywhere;
    if (error > allowed) ++errors.beyond_limit;
    const double relative = error == 0 ? 0 : error / allowed;
    if (relative <= errors.largest_error) continue;
    errors.largest_error = relative;
    errors.worst_column = static_cast<int64_t>(c);
  }
  return errors;
}

RowErrors compare_row(const ReferenceRows& reference, const Tensor& rows, size_t row,
                      const CloseLimits& limits) {
  const auto hidden = static_cast<size_t>(reference.hidden);
  const std::span<const float> wanted = std::span(reference.values).subspan(row * hidden, hidden);
  return rows.type == DataType::kBf16
             ? compare_row(wanted, rows.as<const uint16_t>() + row * hidden, rows.type, limits)
             : compare_row(wanted, rows.as<const float>() + row * hidden, rows.type, limits);
}

// Why a row is wrong, or empty. Negated comparisons, so that a NaN (from values near the end of
// f32) is wrong too.
std::string why_wrong(const RowErrors& errors, const CloseLimits& limits, int64_t token) {
  if (!(errors.relative_rms <= limits.relative_rms)) {
    return fmt::format("output row of token {} is off by {:.2g} of its RMS (limit {:.2g})", token,
                       errors.relative_rms, limits.relative_rms);
  }
  if (!(errors.one_minus_cosine <= limits.one_minus_cosine)) {
    return fmt::format("output row of token {}: 1 - cosine is {:.2g} (limit {:.2g})", token,
                       errors.one_minus_cosine, limits.one_minus_cosine);
  }
  if (!(errors.largest_error <= 1)) {
    return fmt::format(
        "output at token {}, column {} is off by {:.2g} times what rounding explains", token,
        errors.worst_column, errors.largest_error);
  }
  return {};
}

}  // namespace

CloseLimits close_limits(DataType output) {
  // An f32 output has no rounding of its own that could go to the other neighbour.
  const double ulps = output == DataType::kF32 ? 0 : 1;
  return {.one_minus_cosine = 1e-5, .relative_rms = 6e-3, .ulps = ulps, .share = 0.02};
}

CloseLimits other_rounding_limits(DataType output) {
  CloseLimits limits = close_limits(output);
  limits.relative_rms *= 2;
  limits.one_minus_cosine = limits.relative_rms * limits.relative_rms / 2;
  limits.share *= 2;
  return limits;
}

CloseLimits fp8_product_limits(DataType output) {
  CloseLimits limits = close_limits(output);
  limits.relative_rms = 0.06;
  limits.one_minus_cosine = limits.relative_rms * limits.relative_rms / 2;
  limits.share = 0.3;
  return limits;
}

OutputCheck compare_exact(const ReferenceRows& reference, const Tensor& rows) {
  if (std::string reason = misfit(reference, rows); !reason.empty())
    return {.verdict = {false, std::move(reason)}};
  OutputCheck result = find_non_finite(reference, rows);
  if (!result.verdict.ok) return result;
  for (size_t i = 0; i < reference.values.size(); ++i) {
    const float wanted = rounded_to(rows.type, reference.values[i]);
    const float got = value_at(rows, i);
    if (got == wanted) continue;
    if (result.wrong_values++ == 0) {
      result.verdict = {
          false, fmt::format("output is {} at {}, not {}", got, place(reference, i), wanted)};
    }
  }
  if (result.wrong_values > 1) {
    result.verdict.reason +=
        fmt::format(" ({} of {} values are wrong)", result.wrong_values, reference.values.size());
  }
  return result;
}

OutputCheck compare_close(const ReferenceRows& reference, const Tensor& rows, int threads) {
  return compare_close(reference, rows, close_limits(rows.type), threads);
}

OutputCheck compare_close(const ReferenceRows& reference, const Tensor& rows,
                          const CloseLimits& limits, int threads) {
  if (std::string reason = misfit(reference, rows); !reason.empty())
    return {.verdict = {false, std::move(reason)}};
  OutputCheck result = find_non_finite(reference, rows);
  if (!result.verdict.ok) return result;
  std::vector<RowErrors> found(reference.tokens.size());
  in_parts(threads, static_cast<int64_t>(found.size()), [&](int64_t first, int64_t last) {
    for (auto row = static_cast<size_t>(first); row < static_cast<size_t>(last); ++row)
      found[row] = compare_row(reference, rows, row, limits);
  });
  int64_t wrong_rows = 0;
  for (size_t row = 0; row < found.size(); ++row) {
    const RowErrors& errors = found[row];
    result.wrong_values += errors.beyond_limit;
    result.one_minus_cosine = std::max(result.one_minus_cosine, errors.one_minus_cosine);
    result.relative_rms = std::max(result.relative_rms, errors.relative_rms);
    result.largest_error = std::max(result.largest_error, errors.largest_error);
    std::string reason = why_wrong(errors, limits, reference.tokens[row]);
    if (!reason.empty() && wrong_rows++ == 0) result.verdict = {false, std::move(reason)};
  }
  if (wrong_rows > 1) {
    result.verdict.reason +=
        fmt::format(" ({} of {} rows are wrong)", wrong_rows, reference.tokens.size());
  }
  return result;
}

std::vector<std::byte> gather_rows(const Tensor& output, std::span<const int64_t> tokens) {
  const size_t row_bytes =
      static_cast<size_t>(output.shape.back() * bits_per_value(output.type) / 8);
  std::vector<std::byte> rows(tokens.size() * row_bytes);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::memcpy(&rows[i * row_bytes],
                output.as<std::byte>() + static_cast<size_t>(tokens[i]) * row_bytes, row_bytes);
  }
  return rows;
}

}  // namespace moetune

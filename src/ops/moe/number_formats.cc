#include "ops/moe/number_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/integers.h"
#include "base/status_macros.h"

namespace moetune {

namespace {

constexpr float kE2M1Max = 6;
constexpr float kE4M3Max = 448;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr uint32_t sign_of(float value) { return std::bit_cast<uint32_t>(value) >> 31; }

// Exact for every pattern: three mantissa bits times a power of two.
constexpr float decode_e4m3(uint32_t bits) {
  const uint32_t exponent = (bits >> 3) & 0xFu;
  const uint32_t mantissa = bits & 0x7u;
  if (exponent == 15 && mantissa == 7) return kNan;
  const uint32_t significand = exponent == 0 ? mantissa : mantissa + 8;
  const uint32_t shift = exponent == 0 ? 0 : exponent - 1;
  const float magnitude = static_cast<float>(significand << shift) * 0x1p-9f;
  return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

constexpr std::array<float, 256> kE4M3Values = [] {
  std::array<float, 256> values{};
  for (uint32_t bits = 0; bits < 256; ++bits) values[bits] = decode_e4m3(bits);
  return values;
}();

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// The factor that brings the matrix's largest value to the largest code times the largest scale.
float quantising_scale(float largest) {
  if (largest == 0) return 1;
  return std::min(kE4M3Max * kE2M1Max / largest, std::numeric_limits<float>::max());
}

void store_code(uint8_t* row, int64_t index, uint32_t code) {
  row[index / 2] = static_cast<uint8_t>(row[index / 2] | (code << (index % 2 * 4)));
}

// Returns the block's scale and writes its codes.
uint8_t quantise_block(std::span<const float> block, float global_inverse, uint8_t* codes,
                       int64_t first) {
  const uint8_t scale_bits = float_to_e4m3(global_inverse * largest_magnitude(block) / kE2M1Max);
  const float scale = e4m3_to_float(scale_bits) / global_inverse;
  for (size_t i = 0; i < block.size(); ++i) {
    const uint32_t code = scale == 0 ? 0u : float_to_e2m1(block[i] / scale);
    const auto index = first + static_cast<int64_t>(i);
    store_code(codes, index, code);
  }
  return scale_bits;
}

Status check_values(const char* format, std::span<const float> values, int64_t rows, int64_t k,
                    int64_t multiple) {
  if (rows < 0 || k < 0 || k % multiple != 0 || static_cast<int64_t>(values.size()) != rows * k) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}: {} values do not make {} rows of {}", format, values.size(), rows, k),
        multiple == 1 ? "" : "rows must have an even number of values"};
  }
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return {};
  const int64_t at = bad - values.begin();
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("{}: the weight at row {}, column {} is {}", format, at / k, at % k, *bad),
      "only finite weights can be quantised"};
}

}  // namespace

uint8_t float_to_e2m1(float value) {
  // Halfway points between the codes' values. A tie goes up exactly where the upper code is even.
  constexpr std::array<float, 7> kMiddle = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float magnitude = std::abs(value);
  uint32_t code = std::isnan(value) ? 7 : 0;
  for (uint32_t i = 0; i < kMiddle.size(); ++i) {
    const bool upper_is_even = i % 2 == 1;
    if (magnitude > kMiddle[i] || (upper_is_even && magnitude == kMiddle[i])) code = i + 1;
  }
  return static_cast<uint8_t>(sign_of(value) << 3 | code);
}

float e4m3_to_float(uint8_t bits) { return kE4M3Values[bits]; }

uint8_t float_to_e4m3(float value) {
  const uint32_t sign = sign_of(value) << 7;
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude >= kE4M3Max) return static_cast<uint8_t>(sign | 0x7Eu);
  // The step between neighbours: 2^-9 among the subnormals, else 2^(exponent - 3).
  const int exponent = std::max(magnitude == 0 ? -6 : std::ilogb(magnitude), -6);
  // nearbyint rounds ties to even in the default rounding mode. A carry into the next binade is
  // right by itself: the significand's overflow adds one to the exponent field.
  const auto significand =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  const auto exponent_field = static_cast<uint32_t>(exponent + 6);
  return static_cast<uint8_t>(sign | ((exponent_field << 3) + significand));
}

float ue8m0_to_float(uint8_t bits) {
  return bits == 0xFF ? kNan : std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

Result<Nvfp4Matrix> quantise_nvfp4(std::span<const float> values, int64_t rows, int64_t k) {
  MOETUNE_RETURN_IF_ERROR(check_values("nvfp4", values, rows, k, 2));
  const float global_inverse = quantising_scale(largest_magnitude(values));
  Nvfp4Matrix matrix{.rows = rows, .k = k, .global = 1 / global_inverse};
  matrix.codes.resize(static_cast<size_t>(rows * (k / 2)));
  matrix.scales.reserve(static_cast<size_t>(rows * nvfp4_blocks(k)));
  for (int64_t row = 0; row < rows; ++row) {
    uint8_t* codes = matrix.codes.data() + row * (k / 2);
    for (int64_t first = 0; first < k; first += kNvfp4Block) {
      const auto size = static_cast<size_t>(std::min(kNvfp4Block, k - first));
      const auto block = values.subspan(static_cast<size_t>(row * k + first), size);
      matrix.scales.push_back(quantise_block(block, global_inverse, codes, first));
    }
  }
  return matrix;
}

void dequantise_nvfp4_row(const uint8_t* codes, const uint8_t* scales, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    out[i] = kE2M1Values[packed_e2m1(codes, index)] * kE4M3Values[scales[index / kNvfp4Block]];
  }
}

Result<Mxfp4Matrix> quantise_mxfp4(std::span<const float> values, int64_t rows, int64_t k) {
  MOETUNE_RETURN_IF_ERROR(check_values("mxfp4", values, rows, k, 2));
  constexpr int kLargestExponent = 2;  // Of e2m1: 4 <= 6 < 8.
  Mxfp4Matrix matrix{.rows = rows, .k = k, .codes = {}, .scales = {}};
  matrix.codes.resize(static_cast<size_t>(rows * (k / 2)));
  for (int64_t row = 0; row < rows; ++row) {
    uint8_t* codes = matrix.codes.data() + row * (k / 2);
    for (int64_t first = 0; first < k; first += kMxfp4Block) {
      const auto size = static_cast<size_t>(std::min(kMxfp4Block, k - first));
      const auto block = values.subspan(static_cast<size_t>(row * k + first), size);
      const float largest = largest_magnitude(block);
      const int exponent = largest == 0 ? -127 : std::ilogb(largest) - kLargestExponent;
      const auto scale = static_cast<uint8_t>(std::clamp(exponent + 127, 0, 254));
      matrix.scales.push_back(scale);
      for (size_t i = 0; i < size; ++i) {
        store_code(codes, first + static_cast<int64_t>(i),
                   float_to_e2m1(std::ldexp(block[i], 127 - scale)));
      }
    }
  }
  return matrix;
}

void dequantise_mxfp4_row(const uint8_t* codes, const uint8_t* scales, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    out[i] = kE2M1Values[packed_e2m1(codes, index)] * ue8m0_to_float(scales[index / kMxfp4Block]);
  }
}

float quantise_fp8(std::span<const float> values, uint8_t* codes) {
  // Not largest_magnitude(), which ignores NaN.
  float largest = 0;
  for (float value : values) largest = std::abs(value) <= largest ? largest : std::abs(value);
  if (!std::isfinite(largest)) largest = kNan;
  const float scale = largest == 0 ? 1 : largest / kE4M3Max;
  for (size_t i = 0; i < values.size(); ++i) codes[i] = float_to_e4m3(values[i] / scale);
  return scale;
}

Result<Fp8BlockMatrix> quantise_fp8_block(std::span<const float> values, int64_t rows, int64_t k) {
  MOETUNE_RETURN_IF_ERROR(check_values("fp8-block", values, rows, k, 1));
  Fp8BlockMatrix matrix{.rows = rows, .k = k, .codes = {}, .scales = {}};
  matrix.codes.resize(values.size());
  std::vector<float> block;
  std::vector<uint8_t> codes(static_cast<size_t>(kFp8Block * kFp8Block));
  for (int64_t row = 0; row < rows; row += kFp8Block) {
    const int64_t block_rows = std::min(kFp8Block, rows - row);
    for (int64_t first = 0; first < k; first += kFp8Block) {
      const int64_t width = std::min(kFp8Block, k - first);
      block.clear();
      for (int64_t r = row; r < row + block_rows; ++r) {
        const auto from = values.begin() + (r * k + first);
        block.insert(block.end(), from, from + width);
      }
      matrix.scales.push_back(quantise_fp8(block, codes.data()));
      for (int64_t r = 0; r < block_rows; ++r) {
        std::copy_n(codes.begin() + r * width, width,
                    matrix.codes.begin() + ((row + r) * k + first));
      }
    }
  }
  return matrix;
}

namespace {

int64_t scale_offset(ScaleOrder order, int64_t m, int64_t k, int64_t blocks) {
  switch (order) {
    case ScaleOrder::kLinear: return scale_offset_linear(m, k, blocks);
    case ScaleOrder::k128x4: return scale_offset_128x4(m, k, blocks);
    case ScaleOrder::k8x4: return scale_offset_8x4(m, k, blocks);
  }
  return 0;
}

}  // namespace

int64_t scale_bytes(ScaleOrder order, int64_t rows, int64_t blocks) {
  switch (order) {
    case ScaleOrder::kLinear: return rows * blocks;
    case ScaleOrder::k128x4: return scale_bytes_128x4(rows, blocks);
    case ScaleOrder::k8x4: return scale_bytes_8x4(rows, blocks);
  }
  return 0;
}

void reorder_scales(ScaleOrder from_order, std::span<const uint8_t> from, ScaleOrder to_order,
                    std::span<uint8_t> to, int64_t rows, int64_t blocks) {
  std::fill(to.begin(), to.end(), uint8_t{0});
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t k = 0; k < blocks; ++k) {
      to[static_cast<size_t>(scale_offset(to_order, m, k, blocks))] =
          from[static_cast<size_t>(scale_offset(from_order, m, k, blocks))];
    }
  }
}

}  // namespace moetune

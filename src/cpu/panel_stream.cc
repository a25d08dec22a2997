#include "cpu/panel_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/integers.h"
#include "base/status_macros.h"
#include "ops/moe/format.h"

namespace moetune::cpu {
namespace {

// Between a stream and a row, to the one that can be written.
void move(uint8_t* stream, const uint8_t* row, size_t bytes) { std::memcpy(stream, row, bytes); }
void move(const uint8_t* stream, uint8_t* row, size_t bytes) { std::memcpy(row, stream, bytes); }

int64_t group_bytes(const StreamFormat& format) {
  return format.header_bytes + int64_t{format.group_blocks} * format.block_bytes;
}

// All loops go over k in tiles (groups, of fp4), and over the rows inside: what a tile is written
// to, 32 rows side by side, then stays in the nearest cache until its lines are whole.
constexpr int64_t kTileValues = 128;  // Whole groups of every stream.

// ---- Values of whole bytes: per `item_values` of k the rows side by side ----

// Of one row and `values` values of k; what begins a group begins a tile.
template <int item_values, int value_bytes, typename Row, typename Stream>
void move_values(const StreamFormat& format, Row* row, int64_t values, Stream* first) {
  constexpr size_t kItemBytes = item_values * value_bytes;
  const int64_t group_values = int64_t{format.group_blocks} * kBlock;
  for (; values > 0; values -= group_values, first += group_bytes(format)) {
    const int64_t items = std::min(group_values, values) / item_values;
    Stream* at = first + format.header_bytes;
    for (int64_t i = 0; i < items; ++i, at += kPanelRows * kItemBytes, row += kItemBytes)
      move(at, row, kItemBytes);
    if (values < group_values && values % item_values != 0)
      move(at, row, static_cast<size_t>(values % item_values) * value_bytes);
  }
}

template <int item_values, int value_bytes, typename Row, typename Stream>
void move_rows(const StreamFormat& format, const PanelRows<Row>& rows, int64_t k, Stream* stream) {
  const int64_t tile_bytes = kTileValues / (format.group_blocks * kBlock) * group_bytes(format);
  for (int64_t begin = 0; begin < k; begin += kTileValues, stream += tile_bytes)
    for (int row = 0; row < kPanelRows; ++row)
      if (rows.values[row] != nullptr)
        move_values<item_values, value_bytes>(format, rows.values[row] + begin * value_bytes,
                                              std::min(kTileValues, k - begin),
                                              stream + row * item_values * value_bytes);
}

// ---- fp8 ----

// A factor for each half of the panel in front of each group. Without scales it is 1.
void move_fp8_scales(const PanelRows<const uint8_t>& rows, int64_t k, uint8_t* stream) {
  const int64_t groups = ceil_div(k, kFp8Stream.group_blocks * kBlock);
  for (int half = 0; half < kPanelRows / kHalfRows; ++half)
    for (int64_t group = 0; group < groups; ++group) {
      float scale = 1;
      const uint8_t* scales = rows.scales[half * kHalfRows];
      if (scales != nullptr) std::memcpy(&scale, scales + group * 4, sizeof(scale));
      std::memcpy(stream + group * group_bytes(kFp8Stream) + half * 4, &scale, sizeof(scale));
    }
}

void move_fp8_scales(const PanelRows<uint8_t>& rows, int64_t k, const uint8_t* stream) {
  const int64_t groups = ceil_div(k, kFp8Stream.group_blocks * kBlock);
  for (int half = 0; half < kPanelRows / kHalfRows; ++half)
    for (int64_t group = 0; group < groups; ++group)
      if (uint8_t* scales = rows.scales[half * kHalfRows])
        std::memcpy(scales + group * 4, stream + group * group_bytes(kFp8Stream) + half * 4, 4);
}

// ---- fp4 ----

// Nibbles 0, 2, 4, 6 of each half of 64 bits side by side, in the lower 16 of that half.
uint64_t every_other_nibble(uint64_t words) {
  const uint64_t even = words & 0x0F0F0F0F0F0F0F0Fu;
  const uint64_t bytes = (even | even >> 4) & 0x00FF00FF00FF00FFu;
  return (bytes | bytes >> 8) & 0x0000FFFF0000FFFFu;
}
// The inverse.
uint64_t spread_nibbles(uint64_t packed) {
  const uint64_t bytes = (packed | packed << 8) & 0x00FF00FF00FF00FFu;
  return (bytes | bytes << 4) & 0x0F0F0F0F0F0F0F0Fu;
}

// Sixteen codes of a row, in the order of two words of the stream, and back.
uint64_t to_stream_order(uint64_t codes) {
  return every_other_nibble(codes) | every_other_nibble(codes >> 4) << 16;
}
uint64_t to_row_order(uint64_t words) {
  constexpr uint64_t kLower = 0x0000FFFF0000FFFFu;
  return spread_nibbles(words & kLower) | spread_nibbles(words >> 16 & kLower) << 4;
}

constexpr int64_t kWordStride = kPanelRows * 4;  // From a row's word of eight codes to its next.

// The codes of one block of a row, `values` (<= 16) of them; zeros are written in place of others.
void move_block(uint8_t* stream, const uint8_t* row, int64_t values) {
  uint64_t codes = 0;
  if (values == kBlock) {
    std::memcpy(&codes, row, sizeof(codes));
  } else {
    std::memcpy(&codes, row, static_cast<size_t>(ceil_div(values, 2)));
    codes &= (uint64_t{1} << (4 * values)) - 1;
  }
  const uint64_t words = to_stream_order(codes);
  const auto low = static_cast<uint32_t>(words), high = static_cast<uint32_t>(words >> 32);
  std::memcpy(stream, &low, sizeof(low));
  std::memcpy(stream + kWordStride, &high, sizeof(high));
}

void move_block(const uint8_t* stream, uint8_t* row, int64_t values) {
  uint32_t low = 0, high = 0;
  std::memcpy(&low, stream, sizeof(low));
  std::memcpy(&high, stream + kWordStride, sizeof(high));
  const uint64_t codes = to_row_order(low | uint64_t{high} << 32);
  std::memcpy(row, &codes, static_cast<size_t>(ceil_div(values, 2)));
}

// What is known of a format while compiling: loops over whole groups then have no counters left.
template <WeightFormat format>
struct Fp4 {
  static constexpr StreamFormat kStream =
      format == WeightFormat::kNvfp4 ? kNvfp4Stream : kMxfp4Stream;
  static constexpr int64_t kBlockK = format == WeightFormat::kNvfp4 ? 16 : 32;
  static constexpr int64_t kGroupValues = int64_t{kStream.group_blocks} * kBlock;
  static constexpr int64_t kGroupBytes =
      kStream.header_bytes + int64_t{kStream.group_blocks} * kStream.block_bytes;

  // A row's scales and codes of one group, `values` of k.
  template <typename Row, typename Stream>
  static inline void move_group(int row, Row* codes, Row* scales, int64_t values, Stream* group) {
    Stream* scale = group + row / kHalfRows * kFp4Scales * kHalfRows + row % kHalfRows;
    Stream* block = group + kStream.header_bytes + row * 4;
    if (values == kGroupValues) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kGroupValues / kBlockK; ++i)
        move(scale + i * kHalfRows, scales + i, 1);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kStream.group_blocks; ++i)
        move_block(block + i * kStream.block_bytes, codes + i * (kBlock / 2), kBlock);
      return;
    }
    for (int64_t i = 0; i * kBlockK < values; ++i) move(scale + i * kHalfRows, scales + i, 1);
    for (; values > 0; values -= kBlock, block += kStream.block_bytes, codes += kBlock / 2)
      move_block(block, codes, std::min<int64_t>(values, kBlock));
  }

  template <typename Row, typename Stream>
  static void move_panel(const PanelRows<Row>& rows, int64_t k, Stream* stream) {
    for (int64_t begin = 0; begin < k; begin += kGroupValues, stream += kGroupBytes)
      for (int row = 0; row < kPanelRows; ++row)
        if (rows.values[row] != nullptr)
          move_group(row, rows.values[row] + begin / 2, rows.scales[row] + begin / kBlockK,
                     std::min(kGroupValues, k - begin), stream);
  }
};

// ---- All formats ----

template <typename Row, typename Stream>
void move_panel(WeightFormat format, const PanelRows<Row>& rows, int64_t k, Stream* stream) {
  switch (format) {
    case WeightFormat::kBf16: return move_rows<2, 2>(kHalvesStream, rows, k, stream);
    case WeightFormat::kFp16: return move_rows<1, 2>(kHalvesStream, rows, k, stream);
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block:
      move_fp8_scales(rows, k, stream);
      return move_rows<2, 1>(kFp8Stream, rows, k, stream);
    case WeightFormat::kNvfp4: return Fp4<WeightFormat::kNvfp4>::move_panel(rows, k, stream);
    case WeightFormat::kMxfp4: return Fp4<WeightFormat::kMxfp4>::move_panel(rows, k, stream);
  }
}

// ---- What is refused ----

Error damaged(const char* what, uint8_t byte, const char* type) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} 0x{:02x} is negative or not a number", what, byte),
          fmt::format("The weights are damaged, or these are not {} in linear order.", type)};
}

// Whether one of eight e4m3 values is NaN.
bool has_nan(uint64_t codes) {
  constexpr uint64_t kEach = 0x0101010101010101u;
  return (((codes & 0x7F * kEach) + kEach) & 0x80 * kEach) != 0;
}

// The first e4m3 NaN of a row, or its end.
const uint8_t* find_nan(const uint8_t* first, const uint8_t* end) {
  uint64_t eight = 0;
  for (; end - first >= 8; first += 8) {
    std::memcpy(&eight, first, sizeof(eight));
    if (has_nan(eight)) break;
  }
  return std::find_if(first, end, [](uint8_t code) { return (code & 0x7F) == 0x7F; });
}

Status check_row(WeightFormat format, const uint8_t* values, const uint8_t* scales, int64_t k) {
  const auto bytes = [format, k](const uint8_t* first) {
    return std::span(first, static_cast<size_t>(ceil_div(k, format_parts(format).block_k)));
  };
  switch (format) {
    case WeightFormat::kBf16:
    case WeightFormat::kFp16: return {};
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block:
      if (const uint8_t* nan = find_nan(values, values + k); nan != values + k)
        return damaged("fp8 weight", *nan, "e4m3");
      return {};
    case WeightFormat::kNvfp4:
      for (const uint8_t scale : bytes(scales))
        if (scale >= 0x7F) return damaged("nvfp4 block scale", scale, "e4m3");
      return {};
    case WeightFormat::kMxfp4:
      for (const uint8_t scale : bytes(scales))
        if (scale == 0xFF) return damaged("mxfp4 block scale", scale, "ue8m0");
      return {};
  }
  return {};
}

}  // namespace

StreamFormat stream_format(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16:
    case WeightFormat::kFp16: return kHalvesStream;
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block: return kFp8Stream;
    case WeightFormat::kNvfp4: return kNvfp4Stream;
    case WeightFormat::kMxfp4: return kMxfp4Stream;
  }
  return kHalvesStream;
}

int64_t panel_bytes(WeightFormat format, int64_t k_blocks) {
  const StreamFormat stream = stream_format(format);
  return k_blocks * stream.block_bytes +
         ceil_div(k_blocks, stream.group_blocks) * stream.header_bytes;
}

Status pack_panel(WeightFormat format, const PanelRows<const uint8_t>& rows, int64_t k,
                  uint8_t* stream) {
  for (int row = 0; row < kPanelRows; ++row)
    if (rows.values[row] != nullptr)
      MOETUNE_RETURN_IF_ERROR(check_row(format, rows.values[row], rows.scales[row], k));
  move_panel(format, rows, k, stream);
  return {};
}

void unpack_panel(WeightFormat format, const PanelRows<uint8_t>& rows, int64_t k,
                  const uint8_t* stream) {
  move_panel(format, rows, k, stream);
}

}  // namespace moetune::cpu

#include "cpu/panel_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "base/integers.h"
#include "base/status_macros.h"
#include "cpu/side_by_side.h"
#include "ops/moe/bad_codes.h"
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

// Whole tiles of a panel without padding are packed in registers; what is left over, and unpacking,
// goes item by item.
template <typename Row, typename Stream>
bool is_packed_in_registers(const PanelRows<Row>& rows) {
  if constexpr (std::is_const_v<Stream>) return false;
  return std::all_of(std::begin(rows.values), std::end(rows.values),
                     [](const uint8_t* row) { return row != nullptr; });
}

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
  const bool in_registers = is_packed_in_registers<Row, Stream>(rows);
  for (int64_t begin = 0; begin < k; begin += kTileValues, stream += tile_bytes) {
    if constexpr (!std::is_const_v<Stream>) {
      // The groups of a tile follow each other without headers, or it is one group.
      if (in_registers && begin + kTileValues <= k) {
        constexpr int64_t kItems = kTileValues / item_values;
        if constexpr (item_values * value_bytes == 4)
          put_words_side_by_side(rows.values, begin * value_bytes, kItems,
                                 stream + format.header_bytes, [](Longs same) { return same; });
        else
          put_halves_side_by_side(rows.values, begin * value_bytes, kItems,
                                  stream + format.header_bytes);
        continue;
      }
    }
    for (int row = 0; row < kPanelRows; ++row)
      if (rows.values[row] != nullptr)
        move_values<item_values, value_bytes>(format, rows.values[row] + begin * value_bytes,
                                              std::min(kTileValues, k - begin),
                                              stream + row * item_values * value_bytes);
  }
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

// Nibbles 0, 2, 4, 6 of each half of 64 bits side by side, in the lower 16 of that half. Of one
// number of 64 bits, or of two in a vector.
template <typename Long>
Long every_other_nibble(Long words) {
  const Long even = words & 0x0F0F0F0F0F0F0F0Fu;
  const Long bytes = (even | even >> 4) & 0x00FF00FF00FF00FFu;
  return (bytes | bytes >> 8) & 0x0000FFFF0000FFFFu;
}
// The inverse.
uint64_t spread_nibbles(uint64_t packed) {
  const uint64_t bytes = (packed | packed << 8) & 0x00FF00FF00FF00FFu;
  return (bytes | bytes << 4) & 0x0F0F0F0F0F0F0F0Fu;
}

// Sixteen codes of a row, in the order of two words of the stream, and back.
template <typename Long>
Long to_stream_order(Long codes) {
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
    const bool in_registers = is_packed_in_registers<Row, Stream>(rows);
    for (int64_t begin = 0; begin < k; begin += kGroupValues, stream += kGroupBytes) {
      if constexpr (!std::is_const_v<Stream>) {
        if (in_registers && begin + kGroupValues <= k) {
          move_scales(rows, begin / kBlockK, stream);
          put_words_side_by_side(rows.values, begin / 2, kGroupValues / 8,
                                 stream + kStream.header_bytes,
                                 [](Longs codes) { return to_stream_order(codes); });
          continue;
        }
      }
      for (int row = 0; row < kPanelRows; ++row)
        if (rows.values[row] != nullptr)
          move_group(row, rows.values[row] + begin / 2, rows.scales[row] + begin / kBlockK,
                     std::min(kGroupValues, k - begin), stream);
    }
  }

  // Of one whole group of a panel without padding: scale i of row r goes to place 16 i + r of its
  // half.
  static void move_scales(const PanelRows<const uint8_t>& rows, int64_t first, uint8_t* group) {
    constexpr int64_t kScales = kGroupValues / kBlockK;
    for (int row = 0; row < kPanelRows;
         ++row, group += row % kHalfRows == 0 ? (kFp4Scales - 1) * kHalfRows + 1 : 1)
      for (int64_t i = 0; i < kScales; ++i) group[i * kHalfRows] = rows.scales[row][first + i];
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

Status check_row(WeightFormat format, const uint8_t* values, const uint8_t* scales, int64_t k) {
  const int64_t blocks = ceil_div(k, format_parts(format).block_k);
  const auto check = [](const uint8_t* found, const uint8_t* last, const char* what,
                        const char* type) {
    return found == last ? Status() : damaged(what, *found, type);
  };
  switch (format) {
    case WeightFormat::kBf16:
    case WeightFormat::kFp16: return {};
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block:
      return check(find_e4m3_nan(values, values + k), values + k, "fp8 weight", "e4m3");
    case WeightFormat::kNvfp4:
      return check(find_bad_e4m3_scale(scales, scales + blocks), scales + blocks,
                   "nvfp4 block scale", "e4m3");
    case WeightFormat::kMxfp4:
      return check(find_bad_ue8m0_scale(scales, scales + blocks), scales + blocks,
                   "mxfp4 block scale", "ue8m0");
  }
  return {};
}

// Packing walks through 32 rows side by side, which no processor's prefetcher follows: the rows are
// fetched first, each in order.
void fetch_rows(WeightFormat format, const PanelRows<const uint8_t>& rows, int64_t k) {
  constexpr int64_t kLine = 64;
  const int64_t bytes = row_bytes(format, k);
  for (const uint8_t* row : rows.values) {
    if (row == nullptr) continue;
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
  }
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
  fetch_rows(format, rows, k);
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

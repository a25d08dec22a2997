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

// ---- Values of whole bytes: per `item_values` of k the rows side by side ----

template <int item_values, int value_bytes, typename Row, typename Stream>
void move_values(const StreamFormat& format, Row* row, int64_t k, Stream* first) {
  constexpr size_t kItemBytes = item_values * value_bytes;
  const int64_t group_values = int64_t{format.group_blocks} * kBlock;
  for (int64_t begin = 0; begin < k; begin += group_values, first += group_bytes(format)) {
    const int64_t values = std::min(group_values, k - begin);
    Stream* at = first + format.header_bytes;
    for (int64_t i = 0; i < values / item_values; ++i, at += kPanelRows * kItemBytes)
      move(at, row + (begin + i * item_values) * value_bytes, kItemBytes);
    if (const int64_t rest = values % item_values; rest != 0)
      move(at, row + (begin + values - rest) * value_bytes,
           static_cast<size_t>(rest) * value_bytes);
  }
}

template <int item_values, int value_bytes, typename Row, typename Stream>
void move_rows(const StreamFormat& format, const PanelRows<Row>& rows, int64_t k, Stream* stream) {
  for (int row = 0; row < kPanelRows; ++row)
    if (rows.values[row] != nullptr)
      move_values<item_values, value_bytes>(format, rows.values[row], k,
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

// Where things of one row lie within a panel's stream.
struct Fp4Row {
  StreamFormat format;
  int row;

  int64_t scale(int64_t index) const {
    return index / kFp4Scales * group_bytes(format) + row / kHalfRows * kFp4Scales * kHalfRows +
           index % kFp4Scales * kHalfRows + row % kHalfRows;
  }
  // The word of eight codes.
  int64_t codes(int64_t chunk) const {
    const int64_t chunks = 2 * format.group_blocks;
    return chunk / chunks * group_bytes(format) + format.header_bytes +
           chunk % chunks * (format.block_bytes / 2) + row * 4;
  }
};

// Nibbles 0, 2, 4, 6 of a word side by side.
uint32_t every_other_nibble(uint32_t word) {
  const uint32_t even = word & 0x0F0F0F0Fu;
  const uint32_t bytes = even | even >> 4;
  return (bytes & 0xFFu) | (bytes >> 8 & 0xFF00u);
}

// The inverse, of 16 bits.
uint32_t spread_nibbles(uint32_t packed) {
  const uint32_t bytes = (packed & 0xFFu) | (packed & 0xFF00u) << 8;
  return (bytes & 0x000F000Fu) | (bytes & 0x00F000F0u) << 4;
}

// Eight codes from k = 8·chunk on, zeros from k on.
uint32_t load_codes(const uint8_t* row, int64_t chunk, int64_t k) {
  uint32_t word = 0;
  const int64_t codes = std::min<int64_t>(8, k - 8 * chunk);
  std::memcpy(&word, row + 4 * chunk, static_cast<size_t>(ceil_div(codes, 2)));
  return codes == 8 ? word : word & ((1u << (4 * codes)) - 1);
}

void store_codes(uint8_t* row, int64_t chunk, int64_t k, uint32_t word) {
  const int64_t codes = std::min<int64_t>(8, k - 8 * chunk);
  std::memcpy(row + 4 * chunk, &word, static_cast<size_t>(ceil_div(codes, 2)));
}

void move_codes(uint8_t* stream, const uint8_t* row, int64_t chunk, int64_t k) {
  const uint32_t word = load_codes(row, chunk, k);
  const uint32_t packed = every_other_nibble(word) | every_other_nibble(word >> 4) << 16;
  std::memcpy(stream, &packed, sizeof(packed));
}

void move_codes(const uint8_t* stream, uint8_t* row, int64_t chunk, int64_t k) {
  uint32_t packed = 0;
  std::memcpy(&packed, stream, sizeof(packed));
  store_codes(row, chunk, k, spread_nibbles(packed & 0xFFFFu) | spread_nibbles(packed >> 16) << 4);
}

template <typename Row, typename Stream>
void move_fp4(WeightFormat format, const PanelRows<Row>& rows, int64_t k, Stream* stream) {
  const int64_t scales = ceil_div(k, format_parts(format).block_k);
  const int64_t chunks = ceil_div(k, 8);
  for (int row = 0; row < kPanelRows; ++row) {
    if (rows.values[row] == nullptr) continue;
    const Fp4Row at{stream_format(format), row};
    for (int64_t i = 0; i < scales; ++i) move(stream + at.scale(i), rows.scales[row] + i, 1);
    for (int64_t i = 0; i < chunks; ++i) move_codes(stream + at.codes(i), rows.values[row], i, k);
  }
}

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
    case WeightFormat::kNvfp4:
    case WeightFormat::kMxfp4: return move_fp4(format, rows, k, stream);
  }
}

// ---- What is refused ----

Error damaged(const char* what, uint8_t byte, const char* type) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} 0x{:02x} is negative or not a number", what, byte),
          fmt::format("The weights are damaged, or these are not {} in linear order.", type)};
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
      for (const uint8_t code : std::span(values, static_cast<size_t>(k)))
        if ((code & 0x7F) == 0x7F) return damaged("fp8 weight", code, "e4m3");
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

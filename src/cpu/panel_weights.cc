#include "cpu/panel_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/integers.h"
#include "base/status_macros.h"
#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

PanelGrid w13_grid(const FusedMoeSpec& spec) {
  PanelGrid grid;
  grid.panels = ceil_div(spec.intermediate, spec.gated() ? kHalfRows : kPanelRows);
  grid.k_blocks = ceil_div(spec.hidden, kBlock);
  grid.panel_bytes = panel_bytes(spec.weights, grid.k_blocks);
  return grid;
}

PanelGrid w2_grid(const FusedMoeSpec& spec) {
  PanelGrid grid;
  grid.panels = ceil_div(spec.hidden, kPanelRows);
  grid.k_blocks = ceil_div(spec.intermediate, kBlock);
  grid.panel_bytes = panel_bytes(spec.weights, grid.k_blocks);
  return grid;
}

// The rows that make up a panel; null where it is padded.
template <typename Byte>
struct PanelRows {
  Byte* values[kPanelRows] = {};
  Byte* scales[kPanelRows] = {};

  void set(int row, int64_t source_row, int64_t source_rows, int64_t value_bytes,
           int64_t scale_bytes, Byte* value, Byte* scale) {
    if (source_row >= source_rows) return;
    values[row] = value + source_row * value_bytes;
    if (scale != nullptr) scales[row] = scale + source_row * scale_bytes;
  }
};

struct RowSizes {
  int64_t value_bytes;
  int64_t scale_bytes;
};

RowSizes row_sizes(WeightFormat format, int64_t k) {
  if (format == WeightFormat::kBf16) return {2 * k, 0};
  return {ceil_div(k, 2), ceil_div(k, kBlock)};
}

template <typename Byte, typename Weights>
PanelRows<Byte> w13_panel_rows(const FusedMoeSpec& spec, const Weights& weights, int64_t panel) {
  const RowSizes sizes = row_sizes(spec.weights, spec.hidden);
  PanelRows<Byte> rows;
  for (int row = 0; row < kPanelRows; ++row) {
    const bool is_gate = spec.gated() && row < kHalfRows;
    const int64_t source =
        spec.gated() ? panel * kHalfRows + row % kHalfRows : panel * kPanelRows + row;
    rows.set(row, source, spec.intermediate, sizes.value_bytes, sizes.scale_bytes,
             is_gate ? weights.gate : weights.up,
             is_gate ? weights.gate_scales : weights.up_scales);
  }
  return rows;
}

template <typename Byte, typename Weights>
PanelRows<Byte> w2_panel_rows(const FusedMoeSpec& spec, const Weights& weights, int64_t panel) {
  const RowSizes sizes = row_sizes(spec.weights, spec.intermediate);
  PanelRows<Byte> rows;
  for (int row = 0; row < kPanelRows; ++row)
    rows.set(row, panel * kPanelRows + row, spec.hidden, sizes.value_bytes, sizes.scale_bytes,
             weights.down, weights.down_scales);
  return rows;
}

// ---- bf16 ----

void pack_bf16(const PanelRows<const uint8_t>& rows, int64_t k, uint8_t* out) {
  for (int row = 0; row < kPanelRows; ++row) {
    if (rows.values[row] == nullptr) continue;
    uint8_t* lane = out + 4 * row;
    for (int64_t pair = 0; pair < k / 2; ++pair)
      std::memcpy(lane + pair * kPanelRows * 4, rows.values[row] + 4 * pair, 4);
    if (k % 2 != 0) std::memcpy(lane + k / 2 * kPanelRows * 4, rows.values[row] + 2 * (k - 1), 2);
  }
}

void unpack_bf16(const uint8_t* in, int64_t k, const PanelRows<uint8_t>& rows) {
  for (int row = 0; row < kPanelRows; ++row) {
    if (rows.values[row] == nullptr) continue;
    const uint8_t* lane = in + 4 * row;
    for (int64_t pair = 0; pair < k / 2; ++pair)
      std::memcpy(rows.values[row] + 4 * pair, lane + pair * kPanelRows * 4, 4);
    if (k % 2 != 0) std::memcpy(rows.values[row] + 2 * (k - 1), lane + k / 2 * kPanelRows * 4, 2);
  }
}

// ---- nvfp4 ----

// Where things of one row lie within a panel's stream.
struct Nvfp4Row {
  int row;

  static int64_t group_offset(int64_t block) {
    return block / kScaleGroup * (kScaleGroupBytes + kScaleGroup * kNvfp4BlockBytes);
  }
  int64_t scale(int64_t block) const {
    return group_offset(block) + row / kHalfRows * (kScaleGroupBytes / 2) +
           block % kScaleGroup * kHalfRows + row % kHalfRows;
  }
  // The word of eight codes.
  int64_t codes(int64_t chunk) const {
    const int64_t block = chunk / 2;
    return group_offset(block) + kScaleGroupBytes + block % kScaleGroup * kNvfp4BlockBytes +
           chunk % 2 * (kNvfp4BlockBytes / 2) + row * 4;
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
  if (codes <= 0) return 0;
  std::memcpy(&word, row + 4 * chunk, static_cast<size_t>(ceil_div(codes, 2)));
  return codes == 8 ? word : word & ((1u << (4 * codes)) - 1);
}

void store_codes(uint8_t* row, int64_t chunk, int64_t k, uint32_t word) {
  const int64_t codes = std::min<int64_t>(8, k - 8 * chunk);
  if (codes > 0) std::memcpy(row + 4 * chunk, &word, static_cast<size_t>(ceil_div(codes, 2)));
}

bool is_valid_scale(uint8_t scale) { return scale < 0x7F; }

Status pack_nvfp4(const PanelRows<const uint8_t>& rows, int64_t k, uint8_t* out) {
  const int64_t blocks = ceil_div(k, kBlock);
  for (int row = 0; row < kPanelRows; ++row) {
    if (rows.values[row] == nullptr) continue;
    const Nvfp4Row at{row};
    for (int64_t block = 0; block < blocks; ++block) {
      const uint8_t scale = rows.scales[row][block];
      if (!is_valid_scale(scale))
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("nvfp4 block scale 0x{:02x} is negative or not a number", scale),
                     "The weights are damaged, or their scales are not e4m3 in linear order."};
      out[at.scale(block)] = scale;
    }
    for (int64_t chunk = 0; chunk < 2 * blocks; ++chunk) {
      const uint32_t word = load_codes(rows.values[row], chunk, k);
      const uint32_t packed = every_other_nibble(word) | every_other_nibble(word >> 4) << 16;
      std::memcpy(out + at.codes(chunk), &packed, sizeof(packed));
    }
  }
  return {};
}

void unpack_nvfp4(const uint8_t* in, int64_t k, const PanelRows<uint8_t>& rows) {
  const int64_t blocks = ceil_div(k, kBlock);
  for (int row = 0; row < kPanelRows; ++row) {
    if (rows.values[row] == nullptr) continue;
    const Nvfp4Row at{row};
    for (int64_t block = 0; block < blocks; ++block) rows.scales[row][block] = in[at.scale(block)];
    for (int64_t chunk = 0; chunk < 2 * blocks; ++chunk) {
      uint32_t packed = 0;
      std::memcpy(&packed, in + at.codes(chunk), sizeof(packed));
      store_codes(rows.values[row], chunk, k,
                  spread_nibbles(packed & 0xFFFFu) | spread_nibbles(packed >> 16) << 4);
    }
  }
}

Status pack_panel(WeightFormat format, const PanelRows<const uint8_t>& rows, int64_t k,
                  uint8_t* out) {
  if (format == WeightFormat::kNvfp4) return pack_nvfp4(rows, k, out);
  pack_bf16(rows, k, out);
  return {};
}

void unpack_panel(WeightFormat format, const uint8_t* in, int64_t k,
                  const PanelRows<uint8_t>& rows) {
  if (format == WeightFormat::kNvfp4) {
    unpack_nvfp4(in, k, rows);
  } else {
    unpack_bf16(in, k, rows);
  }
}

}  // namespace

int64_t panel_bytes(WeightFormat format, int64_t k_blocks) {
  if (format == WeightFormat::kBf16) return k_blocks * kBf16BlockBytes;
  return k_blocks * kNvfp4BlockBytes + ceil_div(k_blocks, kScaleGroup) * kScaleGroupBytes;
}

Status PanelWeights::supports(const FusedMoeSpec& spec) {
  if (spec.weights == WeightFormat::kBf16 || spec.weights == WeightFormat::kNvfp4) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("no packed CPU layout for {} weights", to_string(spec.weights)),
               "The CPU kernels read bf16 and nvfp4."};
}

int64_t PanelWeights::bytes(const FusedMoeSpec& spec) {
  return spec.experts * (w13_grid(spec).bytes() + w2_grid(spec).bytes());
}

Result<PanelWeights> PanelWeights::allocate(const FusedMoeSpec& spec) {
  MOETUNE_RETURN_IF_ERROR(supports(spec));
  PanelWeights packed;
  packed.spec_ = spec;
  packed.w13_ = w13_grid(spec);
  packed.w2_ = w2_grid(spec);
  MOETUNE_ASSIGN_OR_RETURN(packed.buffer_, Buffer::allocate(static_cast<size_t>(bytes(spec))));
  packed.multipliers_.resize(static_cast<size_t>(spec.experts));
  return packed;
}

Status PanelWeights::pack(int64_t expert, const ExpertWeights& weights) {
  uint8_t* const base = buffer_.data() + expert * expert_bytes();
  for (int64_t panel = 0; panel < w13_.panels; ++panel)
    MOETUNE_RETURN_IF_ERROR(pack_panel(spec_.weights,
                                       w13_panel_rows<const uint8_t>(spec_, weights, panel),
                                       spec_.hidden, base + panel * w13_.panel_bytes));
  for (int64_t panel = 0; panel < w2_.panels; ++panel)
    MOETUNE_RETURN_IF_ERROR(
        pack_panel(spec_.weights, w2_panel_rows<const uint8_t>(spec_, weights, panel),
                   spec_.intermediate, base + w13_.bytes() + panel * w2_.panel_bytes));
  multipliers_[static_cast<size_t>(expert)] = {weights.gate_multiplier, weights.up_multiplier,
                                               weights.down_multiplier};
  return {};
}

void PanelWeights::unpack(int64_t expert, const MutableExpertWeights& weights) const {
  for (int64_t panel = 0; panel < w13_.panels; ++panel)
    unpack_panel(spec_.weights, w13(expert) + panel * w13_.panel_bytes, spec_.hidden,
                 w13_panel_rows<uint8_t>(spec_, weights, panel));
  for (int64_t panel = 0; panel < w2_.panels; ++panel)
    unpack_panel(spec_.weights, w2(expert) + panel * w2_.panel_bytes, spec_.intermediate,
                 w2_panel_rows<uint8_t>(spec_, weights, panel));
}

}  // namespace moetune::cpu

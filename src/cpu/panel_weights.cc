#include "cpu/panel_weights.h"

#include <mutex>
#include <utility>

#include "base/integers.h"
#include "base/status_macros.h"
#include "ops/moe/format.h"
#include "ops/moe/weights.h"

namespace moetune::cpu {
namespace {

PanelGrid grid_of(WeightFormat format, int64_t panels, int64_t k) {
  const int64_t k_blocks = ceil_div(k, kBlock);
  return {panels, k_blocks, panel_bytes(format, k_blocks)};
}

PanelGrid w13_grid(const FusedMoeSpec& spec) {
  return grid_of(spec.weights, ceil_div(spec.intermediate, spec.gated() ? kHalfRows : kPanelRows),
                 spec.hidden);
}

PanelGrid w2_grid(const FusedMoeSpec& spec) {
  return grid_of(spec.weights, ceil_div(spec.hidden, kPanelRows), spec.intermediate);
}

int64_t expert_bytes(const FusedMoeSpec& spec) {
  const PanelGrid w13 = w13_grid(spec), w2 = w2_grid(spec);
  const int64_t biases = spec.bias ? (w13.panels + w2.panels) * kPanelRows : 0;
  return w13.bytes() + w2.bytes() + biases * static_cast<int64_t>(sizeof(float));
}

// The row of w13, gate's before up's, or of w2 that is row `row` of a panel; -1 where the panel is
// padded.
int64_t w13_row(const FusedMoeSpec& spec, int64_t panel, int row) {
  const int rows = spec.gated() ? kHalfRows : kPanelRows;
  const int64_t output = panel * rows + row % rows;
  if (output >= spec.intermediate) return -1;
  return row < rows ? output : spec.intermediate + output;
}

int64_t w2_row(const FusedMoeSpec& spec, int64_t panel, int row) {
  const int64_t output = panel * kPanelRows + row;
  return output < spec.hidden ? output : -1;
}

using RowOf = int64_t (*)(const FusedMoeSpec& spec, int64_t panel, int row);

// A matrix of a chunk, and where it is packed.
struct ExpertMatrix {
  const FusedMoeSpec& spec;
  const PanelGrid& grid;
  RowOf row_of;
  int64_t slice_rows;  // Of gate and of up, whose blocks of scales begin anew; or of all.
  int64_t k;
  const Tensor* values;
  const Tensor* scales = nullptr;
  const Tensor* bias = nullptr;

  // Row of scales that a row has.
  int64_t scale_row(int64_t row) const {
    const int64_t block_rows = format_parts(spec.weights).block_rows;
    return row / slice_rows * ceil_div(slice_rows, block_rows) + row % slice_rows / block_rows;
  }

  template <typename Byte>
  PanelRows<Byte> panel_rows(int64_t panel) const {
    PanelRows<Byte> rows;
    const int64_t value_bytes = row_bytes(spec.weights, k);
    for (int row = 0; row < kPanelRows; ++row) {
      const int64_t source = row_of(spec, panel, row);
      if (source < 0) continue;
      rows.values[row] = values->as<uint8_t>() + source * value_bytes;
      if (scales != nullptr) {
        const int64_t bytes = scales->shape[1] * bits_per_value(scales->type) / 8;
        rows.scales[row] = scales->as<uint8_t>() + scale_row(source) * bytes;
      }
    }
    return rows;
  }

  // Calls visit(bias of the chunk, bias of the panels) for every row.
  template <typename Float, typename Visit>
  void biases(Float* packed, Visit&& visit) const {
    if (bias == nullptr) return;
    for (int64_t panel = 0; panel < grid.panels; ++panel)
      for (int row = 0; row < kPanelRows; ++row, ++packed)
        if (const int64_t source = row_of(spec, panel, row); source >= 0)
          visit(bias->as<float>()[source], *packed);
  }
};

const Tensor* find_if_had(const Tensors& chunk, const char* name, bool has) {
  return has ? find(chunk, name) : nullptr;
}

struct ExpertMatrices {
  ExpertMatrix w13;
  ExpertMatrix w2;

  ExpertMatrices(const FusedMoeSpec& spec, const PanelGrid& w13_grid, const PanelGrid& w2_grid,
                 const Tensors& chunk)
      : w13{spec, w13_grid, w13_row, spec.intermediate, spec.hidden, find(chunk, "w13")},
        w2{spec, w2_grid, w2_row, spec.hidden, spec.intermediate, find(chunk, "w2")} {
    const bool has_scales = format_parts(spec.weights).scales.has_value();
    w13.scales = find_if_had(chunk, "w13_scales", has_scales);
    w2.scales = find_if_had(chunk, "w2_scales", has_scales);
    w13.bias = find_if_had(chunk, "w13_bias", spec.bias);
    w2.bias = find_if_had(chunk, "w2_bias", spec.bias);
  }
};

Status pack_panel(const ExpertMatrix& matrix, int64_t panel, uint8_t* out) {
  return pack_panel(matrix.spec.weights, matrix.panel_rows<const uint8_t>(panel), matrix.k,
                    out + panel * matrix.grid.panel_bytes);
}

void unpack_matrix(const ExpertMatrix& matrix, const uint8_t* in, const float* biases) {
  for (int64_t panel = 0; panel < matrix.grid.panels; ++panel)
    unpack_panel(matrix.spec.weights, matrix.panel_rows<uint8_t>(panel), matrix.k,
                 in + panel * matrix.grid.panel_bytes);
  matrix.biases(biases, [](float& source, float packed) { source = packed; });
}

}  // namespace

int64_t PanelWeights::bytes(const FusedMoeSpec& spec) {
  return spec.held_experts() * expert_bytes(spec);
}

Result<PanelWeights> PanelWeights::allocate(const FusedMoeSpec& spec) {
  PanelWeights packed;
  packed.spec_ = spec;
  packed.w13_ = w13_grid(spec);
  packed.w2_ = w2_grid(spec);
  packed.expert_bytes_ = expert_bytes(spec);
  MOETUNE_ASSIGN_OR_RETURN(packed.buffer_, Buffer::allocate(static_cast<size_t>(bytes(spec))));
  packed.multipliers_.resize(static_cast<size_t>(spec.held_experts()));
  return packed;
}

Status PanelWeights::pack(int64_t expert, const Tensors& chunk, ThreadPool& pool) {
  MOETUNE_ASSIGN_OR_RETURN(const ExpertWeights view, view_expert(spec_, chunk));
  multipliers_[static_cast<size_t>(expert)] = {view.gate_global, view.up_global, view.down_global};
  const ExpertMatrices matrices(spec_, w13_, w2_, chunk);
  uint8_t* const w13 = buffer_.data() + expert * expert_bytes_;
  uint8_t* const w2 = w13 + w13_.bytes();
  auto* const biases = reinterpret_cast<float*>(w2 + w2_.bytes());
  const auto copy_bias = [](float source, float& packed) { packed = source; };
  matrices.w13.biases(biases, copy_bias);
  matrices.w2.biases(biases + w13_.panels * kPanelRows, copy_bias);
  std::mutex mutex;
  Status first_error;
  pool.for_pieces(w13_.panels + w2_.panels, 1, [&](int64_t panel, int64_t) {
    Status packed = panel < w13_.panels ? pack_panel(matrices.w13, panel, w13)
                                        : pack_panel(matrices.w2, panel - w13_.panels, w2);
    if (packed.ok()) return;
    const std::scoped_lock lock(mutex);
    if (first_error.ok()) first_error = std::move(packed);
  });
  return first_error;
}

void PanelWeights::unpack(int64_t expert, const Tensors& chunk) const {
  const ExpertMatrices matrices(spec_, w13_, w2_, chunk);
  unpack_matrix(matrices.w13, w13(expert), w13_bias(expert));
  unpack_matrix(matrices.w2, w2(expert), w2_bias(expert));
  if (!format_parts(spec_.weights).has_global) return;
  const Multipliers& factors = multipliers(expert);
  find(chunk, "w13_global")->as<float>()[0] = factors.gate;
  find(chunk, "w13_global")->as<float>()[1] = factors.up;
  find(chunk, "w2_global")->as<float>()[0] = factors.down;
}

}  // namespace moetune::cpu

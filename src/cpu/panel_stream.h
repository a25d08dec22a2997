// One panel's stream (kernels/kernel_table.h), made of rows as checkpoints hold them, and back.
#pragma once

#include <cstdint>

#include "cpu/kernels/kernel_table.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune::cpu {

/// The rows that make up a panel, row-major as moe_spec.h has them; null where it is padded, and
/// where a format has no scales. fp8-block: a half of 16 rows lies within one row of blocks.
template <typename Byte>
struct PanelRows {
  Byte* values[kPanelRows] = {};
  Byte* scales[kPanelRows] = {};
};

StreamFormat stream_format(WeightFormat format);

/// Bytes of the stream of one panel with `k_blocks` blocks, and the offset in it at which a block
/// begins that starts a group.
int64_t panel_bytes(WeightFormat format, int64_t k_blocks);
inline int64_t panel_offset(WeightFormat format, int64_t block) {
  return panel_bytes(format, block);
}

/// Rows of `k` values into a stream that is all zeros. kInvalidArgument for codes and scales that
/// no quantiser writes and kernels would take for something else: NaNs of e4m3 and ue8m0, and
/// negative scales of nvfp4.
Status pack_panel(WeightFormat format, const PanelRows<const uint8_t>& rows, int64_t k,
                  uint8_t* stream);
/// The exact inverse: the same bits.
void unpack_panel(WeightFormat format, const PanelRows<uint8_t>& rows, int64_t k,
                  const uint8_t* stream);

}  // namespace moetune::cpu

// The table that a kernel file exports. Included last.
#pragma once

#include "cpu/kernels/probe_body.h"

namespace moetune::cpu {
namespace {

constexpr FormatKernels bf16_kernels() {
  FormatKernels kernels{};
  kernels.arithmetic = Simd::kValuesPerItem == 2 ? Arithmetic::kBf16Pairs : Arithmetic::kF32;
  kernels.x_block_items = kBlockItems;
  kernels.pack_x = pack_x;
  kernels.tile = tile_bf16;
  kernels.multiply = multiply;
  if (Simd::kValuesPerItem == 2) return kernels;
  kernels.staged_block_items = kBlockItems * kItemStride;
  kernels.stage = stage_bf16;
  kernels.tile_staged = tile_staged;
  return kernels;
}

constexpr KernelTable make_table(const char* name) {
  KernelTable table{};
  table.name = name;
  table.max_tile = Simd::kMaxTile;
  table.stage_groups = kPanelVecs / kTileVecs;
  table.bf16 = bf16_kernels();
  table.nvfp4 = nvfp4_kernels();
  table.activate = activate;
  table.store = store;
  table.combine_bf16 = combine_bf16;
  table.combine_f32 = combine_f32;
  table.read = read;
  return table;
}

}  // namespace
}  // namespace moetune::cpu

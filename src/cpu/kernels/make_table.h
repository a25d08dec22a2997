// The table that a kernel file exports. Included last.
#pragma once

#include "cpu/kernels/gemm_fp8.h"
#include "cpu/kernels/probe_body.h"

namespace moetune::cpu {
namespace {

// What formats that are multiplied as f32 or as pairs of bf16 have in common.
constexpr FormatKernels float_kernels() {
  FormatKernels kernels{};
  kernels.arithmetic = Simd::kValuesPerItem == 2 ? Arithmetic::kBf16Pairs : Arithmetic::kF32;
  kernels.x_block_items = kBlockItems;
  kernels.pack_x = pack_x;
  kernels.multiply = multiply;
  return kernels;
}

template <typename Format>
constexpr FormatKernels halves_kernels() {
  FormatKernels kernels = float_kernels();
  kernels.tile = tile_halves<Format>;
  if (Simd::kValuesPerItem == 2) return kernels;
  kernels.staged_block_items = kBlockItems * kItemStride;
  kernels.stage = stage_halves<Format>;
  kernels.tile_staged = tile_staged;
  return kernels;
}

constexpr FormatKernels fp8_kernels() {
  FormatKernels kernels = float_kernels();
  kernels.staged_block_items = kBlockItems * kItemStride + kItemStride / kFp8Stream.group_blocks;
  kernels.tile = tile_fp8;
  kernels.stage = stage_fp8;
  kernels.tile_staged = tile_staged_fp8;
  return kernels;
}

constexpr FormatKernels kBf16Kernels = halves_kernels<Bf16>();
constexpr FormatKernels kFp8Kernels = fp8_kernels();
constexpr FormatKernels kNvfp4Kernels = fp4_kernels<Nvfp4>();
constexpr FormatKernels kMxfp4Kernels = fp4_kernels<Mxfp4>();

constexpr KernelTable make_table(const char* name, const FormatKernels* fp16) {
  KernelTable table{};
  table.name = name;
  table.max_tile = Simd::kMaxTile;
  table.stage_groups = kPanelVecs / kTileVecs;
  table.bf16 = &kBf16Kernels;
  table.fp16 = fp16;
  table.fp8 = &kFp8Kernels;
  table.nvfp4 = &kNvfp4Kernels;
  table.mxfp4 = &kMxfp4Kernels;
  table.activate = activate;
  table.store = store;
  table.round_row = round_row;
  table.combine_bf16 = combine_bf16;
  table.combine_f32 = combine_f32;
  table.read = read;
  return table;
}

}  // namespace
}  // namespace moetune::cpu

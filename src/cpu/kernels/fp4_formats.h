// Where the two fp4 formats differ: how many blocks of k share a scale, and what a scale is. Codes
// and kernels are the same.
#pragma once

#include "cpu/kernels/gemm_body.h"

namespace moetune::cpu {
namespace {

constexpr int kChunkItems = 8 / Simd::kValuesPerItem;
constexpr int kChunkBytes = kPanelRows * 4;  // Eight codes of four bits per row.

// Scales are loaded as 2^-8 of what they are: what an e4m3 pattern is as an f16 one.
struct Nvfp4 {
  static constexpr StreamFormat kStream = kNvfp4Stream;
  static Vec load(const uint8_t* p) { return Simd::load_e4m3(p); }
};
struct Mxfp4 {
  static constexpr StreamFormat kStream = kMxfp4Stream;
  static Vec load(const uint8_t* p) { return Simd::load_ue8m0(p); }
};

template <typename Format>
constexpr int group_size(int blocks_left) {
  return blocks_left < Format::kStream.group_blocks ? blocks_left : Format::kStream.group_blocks;
}

// Of a panel's vector `vec`.
template <typename Format>
inline Vec load_scales(const uint8_t* group, int block, int vec) {
  constexpr int kScaleBlocks = Format::kStream.group_blocks / kFp4Scales;
  const int row = vec * Simd::kLanes;
  return Format::load(group + row / kHalfRows * (kFp4Scales * kHalfRows) +
                      block / kScaleBlocks * kHalfRows + row % kHalfRows);
}

}  // namespace
}  // namespace moetune::cpu

// Weights on their way from memory to mma fragments: each warp reads its own, once, straight into
// registers.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace moetune::kernels {

// One lane's part of 16 rows x 64 values. kShared: other warps of the block want it too.
template <int kFormat, bool kShared = false>
struct WeightUnit;

template <bool kShared>
struct WeightUnit<kBf16, kShared> {
  u32 raw[4][4] = {};

  __device__ void load(const u8* unit, int lane, bool live) {
#pragma unroll
    for (int s = 0; s < 4; ++s) load_weights<kShared>(raw[s], unit + s * 512 + lane * 16, live);
  }
  // The fragments of steps 2 * half and 2 * half + 1: {row g, row g+8, row g, row g+8}.
  __device__ void fragments(int half, u32 (&f)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) f[s][i] = raw[2 * half + s][i];
  }
};

template <bool kShared>
struct WeightUnit<kNvfp4, kShared> {
  u32 codes[4] = {};
  u32 scales = 0;

  __device__ void load(const u8* unit, int lane, bool live) {
    load_weights<kShared>(codes, unit + lane * 16, live);
    load_weight_scales(scales, unit + 512 + lane * 2, live);
  }
  __device__ void fragments(int half, u32 (&f)[2][4]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const u32 scale = multiply_bf16x2(__byte_perm(scales, 0, row == 0 ? 0x4040 : 0x4141) << 4,
                                        kNvfp4ScaleFactor);
      u32 pairs[4];
      decode(codes[2 * row + half], pairs);
      f[0][row] = multiply_bf16x2(pairs[0], scale);
      f[0][row + 2] = multiply_bf16x2(pairs[1], scale);
      f[1][row] = multiply_bf16x2(pairs[2], scale);
      f[1][row + 2] = multiply_bf16x2(pairs[3], scale);
    }
  }

 private:
  __device__ static u32 rotate(u32 word, int right) { return __funnelshift_r(word, word, right); }
  // params.h explains the bits.
  __device__ static void decode(u32 word, u32 (&pairs)[4]) {
    constexpr u32 kCode = 0x81C081C0u, kMantissa = 0x00400040u;
    pairs[0] = word & kCode;
    pairs[1] = rotate(word, kRotation1) & kCode;
    pairs[2] = rotate(word, kRotation2) & kCode;
    pairs[3] = (rotate(word, kRotation3) & (kCode & ~kMantissa)) |
               (rotate(word, kRotation3Mantissa) & kMantissa);
  }
};

// Walks over kMt row groups at a time, `units` units of each, then on to the next set of groups. A
// group past the last one reads the last one's bytes: what comes of it is never stored.
template <int kFormat, int kMt, bool kManySets, bool kShared = false>
class WeightStream {
 public:
  // first_unit, units: the range of k; expert: the matrix; stride_units: units of a whole group.
  __device__ WeightStream(const u8* expert, int first_group, int groups, int first_unit, int units,
                          int stride_units, int sets)
      : expert_(expert + i64(first_unit) * kUnit),
        group_(first_group),
        groups_(groups),
        units_(units),
        stride_(stride_units * kUnit),
        left_(sets * units) {
    enter_group();
  }

  __device__ void load(WeightUnit<kFormat, kShared> (&units)[kMt], int lane) {
    const bool live = left_ > 0;
#pragma unroll
    for (int m = 0; m < kMt; ++m) units[m].load(at_ + offset_[m], lane, live);
    at_ += kUnit;
    --left_;
    if constexpr (kManySets) {
      if (++unit_ == units_) {
        group_ += kMt;
        enter_group();
      }
    }
  }

 private:
  static constexpr int kUnit = unit_bytes(kFormat);

  __device__ void enter_group() {
    unit_ = 0;
    const int group = min(group_, groups_ - 1);
    at_ = expert_ + i64(group) * stride_;
#pragma unroll
    for (int m = 0; m < kMt; ++m) offset_[m] = (min(group_ + m, groups_ - 1) - group) * stride_;
  }

  const u8* expert_;
  const u8* at_;
  int offset_[kMt];
  int group_, groups_, units_, unit_ = 0, stride_, left_;
};

}  // namespace moetune::kernels

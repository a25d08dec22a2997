// Weights on their way from memory to mma fragments: each warp reads its own, once, straight into
// registers.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace moetune::kernels {

// One lane's part of 16 rows x 64 values. kShared: other warps of the block want it too.
//   load       from memory
//   fragments  of steps 2 * half and 2 * half + 1: {row g, row g+8, row g, row g+8} as bf16 pairs.
//              A weight is the sum of its kTerms terms, times its block's scale where it has one.
template <int kFormat, bool kShared = false>
struct WeightUnit;

template <bool kShared>
struct HalvesUnit {
  u32 raw[4][4] = {};

  __device__ void load(const u8* unit, int lane, bool live) {
#pragma unroll
    for (int s = 0; s < 4; ++s) load_weights<kShared>(raw[s], unit + s * 512 + lane * 16, live);
  }
};

template <bool kShared>
struct WeightUnit<kBf16, kShared> : HalvesUnit<kShared> {
  static constexpr int kTerms = 1;

  template <int kTerm>
  __device__ void fragments(int half, u32 (&f)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) f[s][i] = this->raw[2 * half + s][i];
  }
};

// An f16 has 11 significant bits: it is the sum of two bf16, exactly.
template <bool kShared>
struct WeightUnit<kFp16, kShared> : HalvesUnit<kShared> {
  static constexpr int kTerms = 2;

  template <int kTerm>
  __device__ void fragments(int half, u32 (&f)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 w = from_f16x2(this->raw[2 * half + s][i]);
        const u32 rounded = to_bf16x2(w.x, w.y);
        f[s][i] =
            kTerm == 0 ? rounded : to_bf16x2(w.x - low_bf16(rounded), w.y - high_bf16(rounded));
      }
  }
};

template <bool kShared>
struct Fp8Unit {
  static constexpr int kTerms = 1;
  u32 codes[2][4] = {};

  __device__ void load(const u8* unit, int lane, bool live) {
#pragma unroll
    for (int h = 0; h < 2; ++h) load_weights<kShared>(codes[h], unit + h * 512 + lane * 16, live);
  }
  template <int kTerm>
  __device__ void fragments(int half, u32 (&f)[2][4]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const u32 word = codes[half][2 * row + s];
        f[s][row] = multiply_bf16x2(word & 0x87F087F0u, kFp8Factor);
        f[s][row + 2] = multiply_bf16x2((__funnelshift_r(word, word, 4) & 0x87808780u) |
                                            (__funnelshift_l(word, word, 4) & 0x00700070u),
                                        kFp8Factor);
      }
  }
};

template <bool kShared>
struct WeightUnit<kFp8, kShared> : Fp8Unit<kShared> {};

template <bool kShared>
struct Fp8BlockUnit : Fp8Unit<kShared> {
  float scales[2] = {};  // of rows 0..7 and of rows 8..15

  __device__ void load(const u8* unit, int lane, bool live) {
    Fp8Unit<kShared>::load(unit, lane, live);
    load_block_scales(scales, unit + kFp8CodeBytes, live);
  }
};

template <bool kShared>
struct WeightUnit<kFp8Block, kShared> : Fp8BlockUnit<kShared> {};
template <bool kShared>
struct WeightUnit<kFp8Rounded, kShared> : Fp8BlockUnit<kShared> {};

// params.h explains the bits.
__device__ inline u32 rotate(u32 word, int right) { return __funnelshift_r(word, word, right); }
__device__ inline void decode_fp4(u32 word, u32 (&pairs)[4]) {
  constexpr u32 kCode = 0x81C081C0u, kMantissa = 0x00400040u;
  pairs[0] = word & kCode;
  pairs[1] = rotate(word, kRotation1) & kCode;
  pairs[2] = rotate(word, kRotation2) & kCode;
  pairs[3] = (rotate(word, kRotation3) & (kCode & ~kMantissa)) |
             (rotate(word, kRotation3Mantissa) & kMantissa);
}

template <int kFormat, bool kShared>
struct Fp4Unit {
  static constexpr int kTerms = 1;
  u32 codes[4] = {};
  u32 scales = 0;  // of rows g and g + 8

  __device__ void load(const u8* unit, int lane, bool live) {
    load_weights<kShared>(codes, unit + lane * 16, live);
    const int at = kFormat == kNvfp4 ? lane : lane >> 1;
    load_weight_scales(scales, unit + kFp4CodeBytes + at * 2, live);
  }
  template <int kTerm>
  __device__ void fragments(int half, u32 (&f)[2][4]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const u32 both = __byte_perm(scales, 0, row == 0 ? 0x4040 : 0x4141);
      const u32 scale =
          kFormat == kNvfp4 ? multiply_bf16x2(both << 4, kNvfp4ScaleFactor) : both << 7;
      u32 pairs[4];
      decode_fp4(codes[2 * row + half], pairs);
      f[0][row] = multiply_bf16x2(pairs[0], scale);
      f[0][row + 2] = multiply_bf16x2(pairs[1], scale);
      f[1][row] = multiply_bf16x2(pairs[2], scale);
      f[1][row + 2] = multiply_bf16x2(pairs[3], scale);
    }
  }
};

template <bool kShared>
struct WeightUnit<kNvfp4, kShared> : Fp4Unit<kNvfp4, kShared> {};
template <bool kShared>
struct WeightUnit<kMxfp4, kShared> : Fp4Unit<kMxfp4, kShared> {};

// Scales of the activations of tokens 2j and 2j + 1 of every 8, for kNb * 8 tokens from
// `first_token` of a tile on. Nothing but for kFp8Rounded.
template <int kFormat, int kNb>
class TokenScales {
 public:
  __device__ TokenScales(const GemmParams&, const Tile&, int, int) {}
  __device__ float at(int, int, int) const { return 1.0f; }
};

template <int kNb>
class TokenScales<kFp8Rounded, kNb> {
 public:
  __device__ TokenScales(const GemmParams& p, const Tile& tile, int first_token, int lane)
      : scales_(p.input_scales) {
    const int blocks = (p.k + kFp8BlockSize - 1) / kFp8BlockSize;
#pragma unroll
    for (int n = 0; n < kNb; ++n)
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const int token = first_token + n * 8 + (lane & 3) * 2 + t;
        const int row = tile.first_row + (token < tile.rows ? token : 0);
        offset_[n][t] = (p.row_index ? p.row_index[row] : row) * blocks;
      }
  }
  __device__ float at(int unit, int n, int t) const {
    return scales_[offset_[n][t] + unit / (kFp8BlockSize / kUnitK)];
  }

 private:
  const float* scales_;
  int offset_[kNb][2];
};

// Sums of products with a unit's codes enter the real ones under the scales of their rows and
// tokens.
template <int kFormat, bool kShared>
__device__ inline void add_scaled(float (&acc)[4], const float (&part)[4],
                                  const WeightUnit<kFormat, kShared>& unit, float token_0 = 1.0f,
                                  float token_1 = 1.0f) {
  static_assert(has_block_scales(kFormat), "no other format has scales that a bf16 cannot take in");
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float scale = unit.scales[i >> 1];
    if constexpr (kFormat == kFp8Rounded) scale *= i & 1 ? token_1 : token_0;
    acc[i] += part[i] * scale;
  }
}

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

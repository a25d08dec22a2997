// Weights into the packed layout (params.h) and back, one expert's matrix per launch, a thread per
// lane and unit, or per lane and step (pack_halves). Rows and values past the matrix's end are
// zeros.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace moetune::kernels {

// The matrix row of a group's row; -1 past the end.
__device__ inline int matrix_row(const PackParams& p, int group, int row) {
  if (!p.gated) {
    const int r = group * kGroupRows + 2 * (row & 7) + (row >> 3);
    return r < p.rows ? r : -1;
  }
  const int half = p.rows / 2, r = group * 8 + (row & 7);
  return r < half ? r + (row >> 3) * half : -1;
}

template <bool kUnpack>
__global__ void __launch_bounds__(256) pack_halves(const PackParams p) {
  const i64 at = blockIdx.x * i64(256) + threadIdx.x;
  if (at >= i64(p.groups) * p.units * 128) return;
  const int lane = at & 31, step = (at >> 5) & 3, unit = (at >> 7) % p.units,
            group = (at >> 7) / p.units;
  u16* packed = reinterpret_cast<u16*>(p.packed) + at * 8;
  u16* source = static_cast<u16*>(const_cast<void*>(p.source));
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = matrix_row(p, group, (lane >> 2) + (i & 2 ? 8 : 0));
    const int k = unit * kUnitK + (lane & 3) * 16 + step * 4 + (i & 1) + (i & 4 ? 2 : 0);
    const bool inside = row >= 0 && k < p.k;
    if (!kUnpack) packed[i] = inside ? source[i64(row) * p.k + k] : 0;
    if (kUnpack && inside) source[i64(row) * p.k + k] = packed[i];
  }
}

// e4m3 (not negative, not NaN) to the wider form of params.h, and back.
__device__ inline u8 widen_scale(u8 e4m3) {
  if (e4m3 == 0) return 0;
  int exponent = e4m3 >> 3, mantissa = e4m3 & 7;
  if (exponent == 0) {  // mantissa * 2^-9
    const int top = 31 - __clz(mantissa);
    exponent = top - 2;
    mantissa = (mantissa << (3 - top)) & 7;
  }
  return u8((exponent - 7 + 22) << 3 | mantissa);
}
__device__ inline u8 narrow_scale(u8 wide) {
  if (wide == 0) return 0;
  const int exponent = (wide >> 3) - 22 + 7, mantissa = wide & 7;
  return exponent > 0 ? u8(exponent << 3 | mantissa) : u8((8 | mantissa) >> (1 - exponent));
}

// Eight codes of 4 bits, the first lowest, to the order of params.h, and back.
__device__ inline u32 pack_codes(u32 codes) {
  u32 word = 0;
  for (int value = 0; value < 8; ++value)
    for (int bit = 0; bit < 4; ++bit)
      word |= (codes >> (4 * value + bit) & 1) << code_bit(value, bit);
  return word;
}
__device__ inline u32 unpack_codes(u32 word) {
  u32 codes = 0;
  for (int value = 0; value < 8; ++value)
    for (int bit = 0; bit < 4; ++bit)
      codes |= (word >> code_bit(value, bit) & 1) << (4 * value + bit);
  return codes;
}

// k is even: a row's codes are whole bytes.
template <bool kUnpack, int kFormat>
__global__ void __launch_bounds__(256) pack_fp4(const PackParams p) {
  const i64 at = blockIdx.x * i64(256) + threadIdx.x;
  if (at >= i64(p.groups) * p.units * 32) return;
  const int lane = at & 31, unit = (at >> 5) % p.units, group = (at >> 5) / p.units;
  u8* packed = p.packed + (at >> 5) * unit_bytes(kFormat);
  u32* words = reinterpret_cast<u32*>(packed + lane * 16);
  const int k = unit * kUnitK + (lane & 3) * 16, bytes = min(8, (p.k - k) / 2);
  constexpr int kBlock = kFormat == kNvfp4 ? 16 : 32;
  const bool has_scale = kFormat == kNvfp4 || (lane & 1) == 0;
  u8* packed_scales = packed + kFp4CodeBytes + (kFormat == kNvfp4 ? lane : lane >> 1) * 2;
  for (int half = 0; half < 2; ++half) {
    const int row = matrix_row(p, group, (lane >> 2) + 8 * half);
    const bool inside = row >= 0 && bytes > 0;
    u8* codes = static_cast<u8*>(const_cast<void*>(p.source)) + (i64(row) * p.k + k) / 2;
    u8* scale = static_cast<u8*>(const_cast<void*>(p.source_scales)) +
                i64(row) * ((p.k + kBlock - 1) / kBlock) + k / kBlock;
    if (!kUnpack && has_scale) {
      packed_scales[half] = !inside             ? 0
                            : kFormat == kNvfp4 ? widen_scale(*scale)
                                                : u8(*scale + kMxfp4Bias);
    }
    if (kUnpack && inside && has_scale) {
      *scale = kFormat == kNvfp4 ? narrow_scale(packed_scales[half])
                                 : u8(packed_scales[half] - kMxfp4Bias);
    }
    for (int w = 0; w < 2; ++w) {
      u32 source = kUnpack ? unpack_codes(words[2 * half + w]) : 0;
      for (int i = 0; i < 4 && inside && w * 4 + i < bytes; ++i) {
        if (kUnpack) codes[w * 4 + i] = u8(source >> (8 * i));
        if (!kUnpack) source |= u32(codes[w * 4 + i]) << (8 * i);
      }
      if (!kUnpack) words[2 * half + w] = pack_codes(source);
    }
  }
}

// Four codes of 8 bits, the first lowest, to the order of params.h, and back.
__device__ inline u32 pack_fp8_word(u32 codes) {
  u32 word = 0;
  for (int value = 0; value < 4; ++value)
    for (int bit = 0; bit < 8; ++bit)
      word |= (codes >> (8 * value + bit) & 1) << fp8_code_bit(value, bit);
  return word;
}
__device__ inline u32 unpack_fp8_word(u32 word) {
  u32 codes = 0;
  for (int value = 0; value < 4; ++value)
    for (int bit = 0; bit < 8; ++bit)
      codes |= (word >> fp8_code_bit(value, bit) & 1) << (8 * value + bit);
  return codes;
}

// The scale of a group's first row, gate's (part 0) or up's, at a unit; -1 past the end. A group
// never straddles blocks of rows.
__device__ inline i64 block_scale_at(const PackParams& p, int group, int unit, int part) {
  const int rows = p.gated ? p.rows / 2 : p.rows;
  const int row = group * (p.gated ? 8 : kGroupRows);
  if (row >= rows) return -1;
  const int part_blocks = (rows + kFp8BlockSize - 1) / kFp8BlockSize;
  const int block_row = (p.gated ? part : 0) * part_blocks + row / kFp8BlockSize;
  return i64(block_row) * ((p.k + kFp8BlockSize - 1) / kFp8BlockSize) +
         unit / (kFp8BlockSize / kUnitK);
}

template <bool kUnpack, int kFormat>
__global__ void __launch_bounds__(256) pack_fp8(const PackParams p) {
  const i64 at = blockIdx.x * i64(256) + threadIdx.x;
  if (at >= i64(p.groups) * p.units * 32) return;
  const int lane = at & 31, unit = (at >> 5) % p.units, group = (at >> 5) / p.units;
  u8* packed = p.packed + (at >> 5) * unit_bytes(kFormat);
  bool nan = false;
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 4; ++i) {
      u32& word = *reinterpret_cast<u32*>(packed + half * 512 + lane * 16 + i * 4);
      const int row = matrix_row(p, group, (lane >> 2) + (i & 2 ? 8 : 0));
      const int k = unit * kUnitK + (lane & 3) * 16 + half * 8 + (i & 1) * 4;
      u8* codes = static_cast<u8*>(const_cast<void*>(p.source)) + i64(row) * p.k + k;
      u32 source = kUnpack ? unpack_fp8_word(word) : 0;
      for (int v = 0; v < 4 && row >= 0 && k + v < p.k; ++v) {
        if (kUnpack) codes[v] = u8(source >> (8 * v));
        if (!kUnpack) source |= u32(codes[v]) << (8 * v);
        if (!kUnpack) nan = nan || (codes[v] & 0x7F) == 0x7F;
      }
      if (!kUnpack) word = pack_fp8_word(source);
    }
  if (nan) *p.not_a_number = 1;
  if constexpr (has_block_scales(kFormat)) {
    if (lane >= 2) return;
    float* source = static_cast<float*>(const_cast<void*>(p.source_scales));
    float* scale = reinterpret_cast<float*>(packed + kFp8CodeBytes);
    const i64 from = block_scale_at(p, group, unit, lane);
    if (kUnpack && from >= 0) source[from] = scale[lane];
    if (!kUnpack) {
      scale[lane] = from >= 0 ? source[from] : 0.0f;
      scale[lane + 2] = 0.0f;
    }
  }
}

}  // namespace moetune::kernels

// The layer's smaller ends: combining what the GEMMs left, and aligning what comes in.
//
// output[token] = sum over the token's slots, in order, of weight * row: the same bits on every
// run.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace moetune::kernels {

// grid  x: blocks of 256 * 4 columns, y: tokens (strided where there are more than blocks)
template <bool kF32Output>
__global__ void __launch_bounds__(256) combine(const CombineParams p) {
  wait_for_previous();
  const int column = (blockIdx.x * 256 + threadIdx.x) * 4;
  if (column >= p.columns) return;
  for (int token = blockIdx.y; token < p.tokens; token += gridDim.y) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int slot = 0; slot < p.top_k; ++slot) {
      const int pair = token * p.top_k + slot, row = p.row_of_pair[pair];
      if (row < 0) continue;
      const float w = p.weights[pair];
      const float4 y = *reinterpret_cast<const float4*>(p.rows + i64(row) * p.row_stride + column);
      sum.x += w * y.x, sum.y += w * y.y, sum.z += w * y.z, sum.w += w * y.w;
    }
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
    const i64 at = i64(token) * p.columns + column;
    if (!kF32Output && p.columns % 4 == 0) {
      *reinterpret_cast<uint2*>(static_cast<u16*>(p.output) + at) =
          make_uint2(to_bf16x2(sum.x, sum.y), to_bf16x2(sum.z, sum.w));
      continue;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i >= p.columns) break;
      if constexpr (kF32Output)
        static_cast<float*>(p.output)[at + i] = values[i];
      else
        static_cast<u16*>(p.output)[at + i] = to_bf16(values[i]);
    }
  }
}

// Copies rows to where they begin at multiples of 16 bytes.
template <int kUnused>
__global__ void __launch_bounds__(256) align_rows(const AlignParams p) {
  wait_for_previous();
  let_next_start();
  const i64 at = blockIdx.x * i64(256) + threadIdx.x;
  if (at >= i64(p.rows) * p.stride) return;
  const int row = at / p.stride, column = at % p.stride;
  p.target[at] = column < p.columns ? p.source[i64(row) * p.columns + column] : 0;
}

// The nearest e4m3 value, ties to even, saturating at 448.
__device__ inline float round_to_e4m3(float x) {
  const u32 bits = __float_as_uint(x) & 0x7FFFFFFFu;
  constexpr float kShift = 24576.0f;  // 1.5 * 2^14: sums have steps of 2^-9, the subnormals' own
  const float magnitude = bits < 0x3C800000u  // 2^-6
                              ? __fsub_rn(__fadd_rn(__uint_as_float(bits), kShift), kShift)
                              : __uint_as_float((bits + 0x7FFFFu + (bits >> 20 & 1)) & ~0xFFFFFu);
  return copysignf(fminf(magnitude, 448.0f), x);
}

// grid  x: warps, each 128 values of a row
template <int kUnused>
__global__ void __launch_bounds__(256) round_rows(const RoundParams p) {
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x & 31, blocks = (p.target_stride + 127) / 128;
  const i64 at = blockIdx.x * i64(8) + (threadIdx.x >> 5);
  if (at >= i64(p.rows) * blocks) return;
  const i64 row = at / blocks;
  const int first = int(at % blocks) * 128 + lane * 4;
  float values[4], largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + i;
    values[i] = column < p.columns ? from_bf16(p.source[row * p.source_stride + column]) : 0.0f;
    largest = fmaxf(largest, fabsf(values[i]));
  }
#pragma unroll
  for (int i = 16; i > 0; i >>= 1)
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, i));
  const float scale = largest == 0.0f ? 1.0f : __fdiv_rn(largest, 448.0f);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i < p.target_stride)
      p.target[row * p.target_stride + first + i] =
          to_bf16(round_to_e4m3(__fdiv_rn(values[i], scale)));
  }
  if (lane == 0) p.scales[at] = scale;
}

}  // namespace moetune::kernels

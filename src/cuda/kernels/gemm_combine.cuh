// GEMM 2 and combine in one kernel, for a handful of tokens: a block computes some rows of one
// token's output, each warp takes one of the token's slots at a time, and the slots' results are
// added in slot order. Where two tokens share an expert its weights are read twice, the second time
// from L2.
//   grid  x: blocks of kMt row groups, y: tokens; kWarps warps, one per slot
// The weights depend on the routing alone, so their loads start before GEMM 1 has ended (kernels of
// one call are launched so that the routing is complete when this kernel starts: GEMM 1 lets its
// successor start only after it has waited for the routing).
#pragma once

#include "cuda/kernels/epilogue.cuh"
#include "cuda/kernels/weights.cuh"

namespace moetune::kernels {

template <int kFormat, int kMt, int kDepth>
class SlotDot {
 public:
  __device__ SlotDot(const GemmParams& p, int expert, int first_group, int lane)
      : p_(p),
        lane_(lane),
        stream_(p.weights + i64(expert) * p.expert_bytes, first_group, p.groups, 0, p.units,
                p.units, expert >= 0 ? 1 : 0) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) stream_.load(ring_[d], lane);
  }

  // acc: only column 0 of each fragment (lanes with j = 0, elements 0 and 2) holds anything.
  __device__ void run(int input_row, float (&acc)[kMt][4]) {
    const u16* row = p_.input + i64(input_row) * p_.input_stride;
    if constexpr (kFormat == kFp8Rounded)
      scales_ = p_.input_scales + input_row * ((p_.k + kFp8BlockSize - 1) / kFp8BlockSize);
    for (int done = 0; done < p_.units; done += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        if (done + d >= p_.units) break;
        multiply(row, done + d, ring_[d], acc);
        stream_.load(ring_[d], lane_);
      }
    }
  }

 private:
  __device__ void multiply(const u16* row, int unit, const WeightUnit<kFormat> (&weights)[kMt],
                           float (&acc)[kMt][4]) {
    u32 b[2][4] = {};
    const int k = unit * kUnitK + (lane_ & 3) * 16;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      load_activations(b[h], row + k + 8 * h, lane_ < 4 && k + 8 * h < p_.k);
#pragma unroll
    for (int m = 0; m < kMt; ++m) {
      if constexpr (has_block_scales(kFormat)) {
        float part[4] = {};
        multiply_group<0>(part, weights[m], b);
        const float token =
            kFormat == kFp8Rounded ? scales_[unit / (kFp8BlockSize / kUnitK)] : 1.0f;
        add_scaled(acc[m], part, weights[m], token, token);
      } else {
        multiply_group<0>(acc[m], weights[m], b);
        if constexpr (WeightUnit<kFormat>::kTerms == 2) multiply_group<1>(acc[m], weights[m], b);
      }
    }
  }
  template <int kTerm>
  __device__ static void multiply_group(float (&acc)[4], const WeightUnit<kFormat>& weights,
                                        const u32 (&b)[2][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 a[2][4];
      weights.template fragments<kTerm>(half, a);
#pragma unroll
      for (int s = 0; s < 2; ++s)
        mma(acc, a[s][0], a[s][1], a[s][2], a[s][3], b[half][2 * s], b[half][2 * s + 1]);
    }
  }

  const GemmParams& p_;
  int lane_;
  const float* scales_ = nullptr;
  WeightStream<kFormat, kMt, false> stream_;
  WeightUnit<kFormat> ring_[kDepth][kMt];
};

template <int kFormat, bool kBias, bool kF32Output, int kMt, int kWarps, int kDepth, int kMinBlocks>
__global__ void __launch_bounds__(32 * kWarps, kMinBlocks) gemm_combine(const GemmCombineParams p) {
  constexpr int kRows = kMt * kGroupRows;
  __shared__ float slots[kWarps][kRows];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, token = blockIdx.y,
            first_group = blockIdx.x * kMt;

  const int first_expert = p.first_expert ? *p.first_expert : 0;
  float sum = 0.0f;
  for (int first = 0; first < p.top_k; first += kWarps) {
    const int slot = first + warp, pair = token * p.top_k + slot;
    const int local = slot < p.top_k ? p.ids[pair] - first_expert : -1;
    const int expert = local >= 0 && local < p.experts && p.ids[pair] >= 0 ? local : -1;
    SlotDot<kFormat, kMt, kDepth> dot(p.gemm, expert, first_group, lane);
    wait_for_previous();
    if (expert >= 0) {
      float acc[kMt][4] = {};
      dot.run(p.row_of_pair[pair], acc);
      const OutputScale<kFormat> scale(p.gemm.scales, expert);
      if ((lane & 3) == 0) {
#pragma unroll
        for (int m = 0; m < kMt; ++m) {
          const int row = m * kGroupRows + 2 * (lane >> 2);
          slots[warp][row] = acc[m][0] * scale.low;
          slots[warp][row + 1] = acc[m][2] * scale.high;
        }
      }
    }
    __syncthreads();
    if (threadIdx.x < kRows && first_group * kGroupRows + threadIdx.x < p.columns) {
      for (int w = 0; w < min(kWarps, p.top_k - first); ++w) {
        const int at = token * p.top_k + first + w;
        if (p.row_of_pair[at] < 0) continue;
        float y = slots[w][threadIdx.x];
        if constexpr (kBias)
          y +=
              p.gemm
                  .bias[(i64(p.ids[at] - first_expert) * p.gemm.groups + first_group) * kGroupRows +
                        threadIdx.x];
        sum += p.weights[at] * y;
      }
    }
    __syncthreads();
  }
  const int column = first_group * kGroupRows + threadIdx.x;
  if (threadIdx.x >= kRows || column >= p.columns) return;
  const i64 at = i64(token) * p.columns + column;
  if constexpr (kF32Output)
    static_cast<float*>(p.gemm.output)[at] = sum;
  else
    static_cast<u16*>(p.gemm.output)[at] = to_bf16(sum);
}

}  // namespace moetune::kernels

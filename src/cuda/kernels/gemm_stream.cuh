// The GEMM of decode: few tokens per expert, so the weights' bytes are the time.
//
// Weight rows are the M of mma.m16n8k16, a tile of kNt tokens its N. Every warp streams its own weights from memory into a ring
// of kDepth units in registers, never through shared memory; the activations it needs come by plain loads, gathered by row, and
// mostly hit L1, since the warps of a block read the same ones. So no warp waits for another before the end, and what is in
// flight per multiprocessor is warps x kDepth x unit bytes.
//   grid   x: blocks of kWm * kMt * sets row groups, y: token tiles (those past the real count leave)
//   warps  kWm along the row groups, kWk along k (their partial sums meet in shared memory, in a fixed order)
#pragma once

#include "cuda/kernels/epilogue.cuh"
#include "cuda/kernels/weights.cuh"

namespace moetune::kernels {

// Reads of activations: lane 4g + j of a token tile's n-th 8 tokens owns token g and k = 16j..16j+15 of each unit.
template <int kNb, bool kRaggedK>
class TokenStream {
 public:
  __device__ TokenStream(const GemmParams& p, const Tile& tile, int lane, int first_unit, int units)
      : lane_k_(first_unit * kUnitK + (lane & 3) * 16), k_(p.k), units_(units), offset_(lane_k_) {
#pragma unroll
    for (int n = 0; n < kNb; ++n) {
      const int token = n * 8 + (lane >> 2);
      live_[n] = token < tile.rows;
      const int row = tile.first_row + (live_[n] ? token : 0);
      at_[n] = p.input + i64(p.row_index ? p.row_index[row] : row) * p.input_stride;
    }
  }

  __device__ void load(u32 (&b)[kNb][2][4], bool more) {
#pragma unroll
    for (int n = 0; n < kNb; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        bool live = live_[n] && more;
        if constexpr (kRaggedK) {
          live = live && offset_ + 8 * h < k_;
#pragma unroll
          for (int i = 0; i < 4; ++i) b[n][h][i] = 0;
        }
        load_activations(b[n][h], at_[n] + offset_ + 8 * h, live);
      }
    offset_ += kUnitK;
    if (++unit_ == units_) {
      unit_ = 0;
      offset_ = lane_k_;
    }
  }

 private:
  const u16* at_[kNb];
  bool live_[kNb];
  int lane_k_, k_, units_, offset_, unit_ = 0;
};

template <int kFormat, int kEpilogue, bool kBias, int kNb>
__device__ inline void store_tokens(const GemmParams& p, const Tile& tile, const OutputScale<kFormat>& scale, int group,
                                    const float (&acc)[kNb][4], int lane) {
  if (group >= p.groups) return;
  const int g = lane >> 2, j = lane & 3;
  float bias_low = 0.0f, bias_high = 0.0f;
  if constexpr (kBias) {
    const float* bias = p.bias + (i64(tile.expert) * p.groups + group) * kGroupRows;
    bias_low = bias[g];
    bias_high = bias[g + 8];
  }
#pragma unroll
  for (int n = 0; n < kNb; ++n)
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int token = n * 8 + 2 * j + t;
      if (token >= tile.rows) continue;
      const float low = acc[n][t] * scale.low + bias_low, high = acc[n][t + 2] * scale.high + bias_high;
      const i64 row = i64(tile.first_row + token) * p.output_stride;
      if constexpr (kEpilogue == kIdentity) {
        float* out = static_cast<float*>(p.output) + row + group * kGroupRows + g;
        out[0] = low;
        out[8] = high;
      } else if constexpr (is_gated(kEpilogue)) {
        static_cast<u16*>(p.output)[row + group * 8 + g] = to_bf16(activate<kEpilogue>(low, high));
      } else {
        u16* out = static_cast<u16*>(p.output) + row + group * kGroupRows + g;
        out[0] = to_bf16(relu2(low));
        out[8] = to_bf16(relu2(high));
      }
    }
}

template <int kFormat, int kMt, int kNb>
struct StreamSlot {
  WeightUnit<kFormat> weights[kMt];
  u32 tokens[kNb][2][4] = {};

  __device__ void multiply(float (&acc)[kMt][kNb][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int m = 0; m < kMt; ++m) {
        u32 a[2][4];
        weights[m].fragments(half, a);
#pragma unroll
        for (int n = 0; n < kNb; ++n)
#pragma unroll
          for (int s = 0; s < 2; ++s)
            mma(acc[m][n], a[s][0], a[s][1], a[s][2], a[s][3], tokens[n][half][2 * s], tokens[n][half][2 * s + 1]);
      }
  }
};

// Asks L2 for this block's share of the same expert's next matrix.
__device__ inline void prefetch_next(const GemmParams& p, int expert) {
  const i64 lines = (p.next_expert_bytes + 127) / 128;
  const i64 first = lines * blockIdx.x / gridDim.x, last = lines * (blockIdx.x + 1) / gridDim.x;
  const u8* base = p.next_weights + expert * p.next_expert_bytes;
  for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) prefetch_l2(base + i * 128);
}

template <int kFormat, int kEpilogue, bool kBias, bool kRaggedK, int kNt, int kMt, int kWm, int kWk, int kDepth, bool kManySets,
          int kMinBlocks>
__global__ void __launch_bounds__(32 * kWm * kWk, kMinBlocks) gemm_stream(const GemmParams p) {
  static_assert(kWk == 1 || !kManySets, "warps that share a sum meet once, at the end");
  constexpr int kNb = kNt / 8;
  __shared__ float partial[kWk > 1 ? (kWk - 1) * kWm * kMt * kNb * 4 * 32 : 1];

  wait_for_previous();
  let_next_start();
  const Tile tile = p.tiles[blockIdx.y];
  if (blockIdx.y >= *p.tile_count) return;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp % kWm, wk = warp / kWm;
  const int first_group = (blockIdx.x * kWm + wm) * kMt * (kManySets ? p.sets : 1);
  const int first_unit = p.units * wk / kWk, units = p.units * (wk + 1) / kWk - first_unit;
  const int sets = kManySets ? min(p.sets, (p.groups - first_group + kMt - 1) / kMt) : int(first_group < p.groups);
  const int total = max(sets, 0) * units;

  WeightStream<kFormat, kMt, kManySets> weights(p.weights + tile.expert * p.expert_bytes, first_group, p.groups, first_unit, units,
                                                p.units, max(sets, 0));
  StreamSlot<kFormat, kMt, kNb> slots[kDepth];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) weights.load(slots[d].weights, lane);
  TokenStream<kNb, kRaggedK> tokens(p, tile, lane, first_unit, units);
#pragma unroll
  for (int d = 0; d < kDepth; ++d) tokens.load(slots[d].tokens, d < total);
  if (p.next_weights) prefetch_next(p, tile.expert);

  const OutputScale<kFormat> scale(p.scales, tile.expert);
  float acc[kMt][kNb][4] = {};
  int group = first_group, unit = 0;
  auto finish_unit = [&] {
    if constexpr (kManySets) {
      if (++unit < units) return;
      unit = 0;
#pragma unroll
      for (int m = 0; m < kMt; ++m) {
        store_tokens<kFormat, kEpilogue, kBias>(p, tile, scale, group + m, acc[m], lane);
#pragma unroll
        for (int n = 0; n < kNb; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[m][n][i] = 0.0f;
      }
      group += kMt;
    }
  };

  int done = 0;
  for (; done + kDepth <= total; done += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      slots[d].multiply(acc);
      weights.load(slots[d].weights, lane);
      tokens.load(slots[d].tokens, done + kDepth + d < total);
      finish_unit();
    }
  }
#pragma unroll
  for (int d = 0; d < kDepth - 1; ++d)
    if (done + d < total) {
      slots[d].multiply(acc);
      finish_unit();
    }
  if constexpr (kWk > 1) {
    auto at = [&](int k, int m, int n, int i) -> float& {
      return partial[((((k - 1) * kWm + wm) * kMt + m) * kNb + n) * 128 + i * 32 + lane];
    };
    if (wk > 0) {
#pragma unroll
      for (int m = 0; m < kMt; ++m)
#pragma unroll
        for (int n = 0; n < kNb; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) at(wk, m, n, i) = acc[m][n][i];
    }
    __syncthreads();
    if (wk > 0) return;
#pragma unroll
    for (int k = 1; k < kWk; ++k)
#pragma unroll
      for (int m = 0; m < kMt; ++m)
#pragma unroll
        for (int n = 0; n < kNb; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[m][n][i] += at(k, m, n, i);
  }
  if constexpr (!kManySets) {
#pragma unroll
    for (int m = 0; m < kMt; ++m) store_tokens<kFormat, kEpilogue, kBias>(p, tile, scale, first_group + m, acc[m], lane);
  }
}

}  // namespace moetune::kernels

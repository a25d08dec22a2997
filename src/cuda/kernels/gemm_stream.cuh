// The GEMM of decode: few tokens per expert, so the weights' bytes are the time.
//
// Weight rows are the M of mma.m16n8k16, a tile of kNt tokens its N. Every warp streams its own
// weights from memory into a ring of kDepth units in registers, never through shared memory; the
// activations it needs come by plain loads, gathered by row, and mostly hit L1, since the warps of
// a block read the same ones. So no warp waits for another before the end, and what is in flight
// per multiprocessor is warps x kDepth x unit bytes.
//
// A block has kWm warps along the row groups times kWk along k, whose sums meet in shared memory,
// in a fixed order. With kManySets a warp works through p.sets sets of row groups in one stream,
// which pays where k is short; where k has just kHeldUnits units, the activations of all of them
// stay in registers.
//
// grid.x: blocks of kWm * kMt * sets row groups; grid.y: token tiles (those past the real count
// leave).
#pragma once

#include "cuda/kernels/epilogue.cuh"
#include "cuda/kernels/weights.cuh"

namespace moetune::kernels {

// Activations of one unit: 16 values of k of each of kNb * 8 tokens.
template <int kNb>
using TokenUnit = u32[kNb][2][4];

// Reads activations: lane 4g + j owns token g of every 8 and k = 16j..16j+15 of each unit.
template <int kNb, bool kRaggedK>
class TokenStream {
 public:
  __device__ TokenStream(const GemmParams& p, const Tile& tile, int lane, int first_unit, int units)
      : k_(p.k - first_unit * kUnitK - (lane & 3) * 16), units_(units) {
#pragma unroll
    for (int n = 0; n < kNb; ++n) {
      const int token = n * 8 + (lane >> 2);
      live_[n] = token < tile.rows;
      const int row = tile.first_row + (live_[n] ? token : 0);
      at_[n] = p.input + i64(p.row_index ? p.row_index[row] : row) * p.input_stride +
               first_unit * kUnitK + (lane & 3) * 16;
    }
  }

  __device__ void load(TokenUnit<kNb>& unit, bool more) {
#pragma unroll
    for (int n = 0; n < kNb; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        bool live = live_[n] && more;
        if constexpr (kRaggedK) {
          live = live && unit_ * kUnitK + 8 * h < k_;
#pragma unroll
          for (int i = 0; i < 4; ++i) unit[n][h][i] = 0;
        }
        load_activations(unit[n][h], at_[n] + 8 * h, live);
      }
      at_[n] += kUnitK;
    }
    ++unit_;
  }
  // Back to the first unit, for the next set of row groups.
  __device__ void rewind_at_end() {
    if (unit_ < units_) return;
    unit_ = 0;
#pragma unroll
    for (int n = 0; n < kNb; ++n) at_[n] -= units_ * kUnitK;
  }

 private:
  const u16* at_[kNb];
  bool live_[kNb];
  int k_, units_, unit_ = 0;
};

// One group's half a unit, for all of the tokens.
template <int kTerm, int kFormat, int kNb>
__device__ inline void multiply_half(float (&acc)[kNb][4], const WeightUnit<kFormat>& weights,
                                     const TokenUnit<kNb>& tokens, int half) {
  u32 a[2][4];
  weights.template fragments<kTerm>(half, a);
#pragma unroll
  for (int n = 0; n < kNb; ++n)
#pragma unroll
    for (int s = 0; s < 2; ++s)
      mma(acc[n], a[s][0], a[s][1], a[s][2], a[s][3], tokens[n][half][2 * s],
          tokens[n][half][2 * s + 1]);
}

template <int kFormat, int kMt, int kNb>
__device__ inline void multiply_unit(Sums<kMt, kNb>& acc, const WeightUnit<kFormat> (&weights)[kMt],
                                     const TokenUnit<kNb>& tokens,
                                     const TokenScales<kFormat, kNb>& scales, int unit) {
  if constexpr (has_block_scales(kFormat)) {
#pragma unroll
    for (int m = 0; m < kMt; ++m) {
      float part[kNb][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) multiply_half<0>(part, weights[m], tokens, half);
#pragma unroll
      for (int n = 0; n < kNb; ++n)
        add_scaled(acc[m][n], part[n], weights[m], scales.at(unit, n, 0), scales.at(unit, n, 1));
    }
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int m = 0; m < kMt; ++m) {
        multiply_half<0>(acc[m], weights[m], tokens, half);
        if constexpr (WeightUnit<kFormat>::kTerms == 2)
          multiply_half<1>(acc[m], weights[m], tokens, half);
      }
  }
}

// Adds up the sums of the kWk warps that share row groups, for the first of them. The whole block
// calls this.
template <int kWm, int kWk, int kMt, int kNb>
__device__ inline void sum_along_k(Sums<kMt, kNb>& acc, float* partial, int wm, int wk, int lane) {
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

template <int kFormat, int kEpilogue, bool kBias, bool kRaggedK, int kNt, int kMt, int kWm, int kWk,
          int kDepth, bool kManySets, int kHeldUnits, int kMinBlocks>
__global__ void __launch_bounds__(32 * kWm * kWk, kMinBlocks) gemm_stream(const GemmParams p) {
  static_assert(kWk == 1 || !kManySets, "warps that share a sum meet once, at the end");
  static_assert(kHeldUnits == 0 || (kManySets && kDepth % kHeldUnits == 0),
                "a slot must always see the same held unit");
  constexpr int kNb = kNt / 8, kTokenSlots = kHeldUnits ? kHeldUnits : kDepth;
  __shared__ float partial[kWk > 1 ? (kWk - 1) * kWm * kMt * kNb * 4 * 32 : 1];

  wait_for_previous();
  let_next_start();
  const Tile tile = p.tiles[blockIdx.y];
  if (blockIdx.y >= *p.tile_count) return;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp % kWm, wk = warp / kWm;
  const int first_group = (blockIdx.x * kWm + wm) * kMt * (kManySets ? p.sets : 1);
  const int first_unit = p.units * wk / kWk, units = p.units * (wk + 1) / kWk - first_unit;
  const int wanted = kManySets ? p.sets : 1;
  const int sets = max(0, min(wanted, (p.groups - first_group + kMt - 1) / kMt)),
            total = sets * units;

  WeightStream<kFormat, kMt, kManySets> weight_stream(p.weights + tile.expert * p.expert_bytes,
                                                      first_group, p.groups, first_unit, units,
                                                      p.units, sets);
  WeightUnit<kFormat> weights[kDepth][kMt];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) weight_stream.load(weights[d], lane);
  TokenStream<kNb, kRaggedK> token_stream(p, tile, lane, first_unit, units);
  TokenUnit<kNb> tokens[kTokenSlots] = {};
#pragma unroll
  for (int d = 0; d < kTokenSlots; ++d) {
    token_stream.load(tokens[d], d < total);
    if constexpr (kManySets) token_stream.rewind_at_end();
  }

  const OutputScale<kFormat> scale(p.scales, tile.expert);
  const TokenScales<kFormat, kNb> token_scales(p, tile, 0, lane);
  Sums<kMt, kNb> acc = {};
  int group = first_group, unit = 0, scaled_unit = 0;
  auto multiply = [&](int d) {
    multiply_unit<kFormat>(acc, weights[d], tokens[d % kTokenSlots], token_scales,
                           first_unit + scaled_unit);
    if constexpr (kFormat == kFp8Rounded)
      scaled_unit = scaled_unit + 1 == units ? 0 : scaled_unit + 1;
  };
  auto finish_unit = [&](int d) {
    if constexpr (kManySets) {
      if (kHeldUnits ? (d + 1) % (kHeldUnits ? kHeldUnits : 1) != 0 : ++unit < units) return;
      unit = 0;
      store_set<kFormat, kEpilogue, kBias>(p, tile, scale, group, 0, acc, lane);
      group += kMt;
    }
  };

  int done = 0;
  for (; done + kDepth <= total; done += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      multiply(d);
      weight_stream.load(weights[d], lane);
      if constexpr (kHeldUnits == 0) {
        token_stream.load(tokens[d], done + kDepth + d < total);
        if constexpr (kManySets) token_stream.rewind_at_end();
      }
      finish_unit(d);
    }
  }
#pragma unroll
  for (int d = 0; d < kDepth - 1; ++d)
    if (done + d < total) {
      multiply(d);
      finish_unit(d);
    }

  if constexpr (kWk > 1) {
    sum_along_k<kWm, kWk>(acc, partial, wm, wk, lane);
    if (wk > 0) return;
  }
  if constexpr (!kManySets)
    store_set<kFormat, kEpilogue, kBias>(p, tile, scale, first_group, 0, acc, lane);
}

}  // namespace moetune::kernels

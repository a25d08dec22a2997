// The GEMM of prefill: many tokens per expert.
//
// Tokens are the M of mma.m16n8k16, weight rows its N: a lane then holds neighbouring columns of a token, which it can store together.
// (The packed layout serves as well as in gemm_stream: rows g of a group are one fragment of B, rows g + 8 another.) A tile of kNt
// tokens is gathered into shared memory, all warps read all of it; every warp owns kMt row groups, whose weights it streams from
// memory into registers, so that nothing is dequantised twice and no weight goes through shared memory.
//   kResident   the tile's whole k lies in shared memory; the block works through `sets` sets of row groups with no barrier.
//   otherwise   a ring of kStages chunks of 64 k, one barrier a chunk.
//   grid        x: blocks of kWarps * kMt * sets row groups, y: token tiles; blocks of one tile and then of one expert are neighbours,
//               and meet in L2
#pragma once

#include "cuda/kernels/epilogue.cuh"
#include "cuda/kernels/weights.cuh"

namespace moetune::kernels {

constexpr int kChunkRowBytes = kUnitK * 2;

// Gathers a token tile chunk by chunk. Rows past the tile's end and values past k are zeros. Of a row's eight 16-byte vectors, v lies at
// place v ^ (row & 7): no bank conflicts when a warp reads fragments.
template <int kNt, int kThreads>
class TileLoader {
 public:
  __device__ TileLoader(const GemmParams& p, const Tile& tile) : input_(p.input), k_(p.k) {
    vector_ = threadIdx.x & 7;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = row(i);
      live_[i] = r < tile.rows;
      const int sorted = tile.first_row + (live_[i] ? r : 0);
      offset_[i] = i64(p.row_index ? p.row_index[sorted] : sorted) * p.input_stride + vector_ * 8;
    }
  }

  __device__ void load(int chunk, u32 stage) const {
    const int k = chunk * kUnitK;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = row(i);
      if (kNt % (kThreads / 8) != 0 && r >= kNt) continue;
      const bool live = live_[i] && k + vector_ * 8 < k_;
      copy_async(stage + r * kChunkRowBytes + ((vector_ ^ (r & 7)) << 4), input_ + (live ? offset_[i] + k : 0), live);
    }
  }

 private:
  static constexpr int kRows = (kNt + kThreads / 8 - 1) / (kThreads / 8);
  __device__ static int row(int i) { return i * (kThreads / 8) + (threadIdx.x >> 3); }

  const u16* input_;
  i64 offset_[kRows];
  bool live_[kRows];
  int vector_, k_;
};

template <int kNt, int kMt>
using TileSums = float[kNt / 16][kMt][2][4];

// One chunk of 64 k for one warp; 16-token blocks past the tile's end are left out.
template <int kFormat, int kNt, int kMt>
__device__ inline void multiply_chunk(TileSums<kNt, kMt>& acc, const WeightUnit<kFormat> (&weights)[kMt], u32 stage, int rows,
                                      int lane) {
  const int g = lane >> 2, j = lane & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 b[kMt][2][4];
#pragma unroll
    for (int m = 0; m < kMt; ++m) weights[m].fragments(half, b[m]);
    const u32 at = stage + g * kChunkRowBytes + (((2 * j + half) ^ g) << 4);
#pragma unroll
    for (int t = 0; t < kNt / 16; ++t) {
      if (t > 0 && t * 16 >= rows) break;
      u32 low[4], high[4];
      load_shared(low, at + t * 16 * kChunkRowBytes);
      load_shared(high, at + (t * 16 + 8) * kChunkRowBytes);
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int m = 0; m < kMt; ++m) {
          mma(acc[t][m][0], low[2 * s], high[2 * s], low[2 * s + 1], high[2 * s + 1], b[m][s][0], b[m][s][2]);
          mma(acc[t][m][1], low[2 * s], high[2 * s], low[2 * s + 1], high[2 * s + 1], b[m][s][1], b[m][s][3]);
        }
    }
  }
}

// Two neighbouring rows of weights, 2j and 2j + 1, for one token.
template <int kEpilogue>
__device__ inline void store_pair(const GemmParams& p, i64 row, int column, float a, float b) {
  if constexpr (kEpilogue == kIdentity)
    *reinterpret_cast<float2*>(static_cast<float*>(p.output) + row + column) = make_float2(a, b);
  else
    *reinterpret_cast<u32*>(static_cast<u16*>(p.output) + row + column) = to_bf16x2(a, b);
}

template <int kFormat, int kEpilogue, bool kBias, int kNt, int kMt>
__device__ inline void store_tile(const GemmParams& p, const Tile& tile, const OutputScale<kFormat>& scale, int first_group,
                                  const TileSums<kNt, kMt>& acc, int lane) {
  const int g = lane >> 2, j = lane & 3;
#pragma unroll
  for (int m = 0; m < kMt; ++m) {
    const int group = first_group + m;
    if (group >= p.groups) break;
    float2 bias[2] = {};
    if constexpr (kBias) {
      const float* at = p.bias + (i64(tile.expert) * p.groups + group) * kGroupRows + 2 * j;
      bias[0] = make_float2(at[0], at[1]);
      bias[1] = make_float2(at[8], at[9]);
    }
#pragma unroll
    for (int t = 0; t < kNt / 16; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int token = t * 16 + h * 8 + g;
        if (token >= tile.rows) continue;
        const i64 row = i64(tile.first_row + token) * p.output_stride;
        const float(&c)[2][4] = acc[t][m];
        const float low0 = c[0][2 * h] * scale.low + bias[0].x, low1 = c[0][2 * h + 1] * scale.low + bias[0].y;
        const float high0 = c[1][2 * h] * scale.high + bias[1].x, high1 = c[1][2 * h + 1] * scale.high + bias[1].y;
        if constexpr (is_gated(kEpilogue)) {
          store_pair<kEpilogue>(p, row, group * 8 + 2 * j, activate<kEpilogue>(low0, high0), activate<kEpilogue>(low1, high1));
        } else if constexpr (kEpilogue == kRelu2) {
          store_pair<kEpilogue>(p, row, group * kGroupRows + 2 * j, relu2(low0), relu2(low1));
          store_pair<kEpilogue>(p, row, group * kGroupRows + 8 + 2 * j, relu2(high0), relu2(high1));
        } else {
          store_pair<kEpilogue>(p, row, group * kGroupRows + 2 * j, low0, low1);
          store_pair<kEpilogue>(p, row, group * kGroupRows + 8 + 2 * j, high0, high1);
        }
      }
  }
}

template <int kNt, int kMt>
__device__ inline void clear(TileSums<kNt, kMt>& acc) {
#pragma unroll
  for (int t = 0; t < kNt / 16; ++t)
#pragma unroll
    for (int m = 0; m < kMt; ++m)
#pragma unroll
      for (int i = 0; i < 8; ++i) acc[t][m][i >> 2][i & 3] = 0.0f;
}

template <int kFormat, int kEpilogue, bool kBias, int kNt, int kMt, int kWarps, int kDepth, int kStages, bool kResident,
          int kMinBlocks>
__global__ void __launch_bounds__(32 * kWarps, kMinBlocks) gemm_tile(const GemmParams p) {
  constexpr int kStageBytes = kNt * kChunkRowBytes;
  extern __shared__ __align__(128) u8 shared[];

  wait_for_previous();
  let_next_start();
  const Tile tile = p.tiles[blockIdx.y];
  if (blockIdx.y >= *p.tile_count) return;

  const u32 ring = shared_address(shared);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, chunks = p.units;
  const int wanted = kResident ? p.sets : 1, first_group = (blockIdx.x * kWarps + warp) * kMt * wanted;
  const int sets = max(0, min(wanted, (p.groups - first_group + kMt - 1) / kMt));

  WeightStream<kFormat, kMt, kResident> stream(p.weights + tile.expert * p.expert_bytes, first_group, p.groups, 0, chunks, chunks,
                                               sets);
  WeightUnit<kFormat> weights[kDepth][kMt];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) stream.load(weights[d], lane);

  const TileLoader<kNt, 32 * kWarps> loader(p, tile);
  const OutputScale<kFormat> scale(p.scales, tile.expert);
  TileSums<kNt, kMt> acc;
  clear<kNt, kMt>(acc);

  if constexpr (kResident) {
    for (int c = 0; c < chunks; ++c) loader.load(c, ring + c * kStageBytes);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    const int total = sets * chunks;
    int chunk = 0, group = first_group;
    for (int done = 0; done < total; done += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        if (done + d >= total) break;
        multiply_chunk<kFormat, kNt, kMt>(acc, weights[d], ring + chunk * kStageBytes, tile.rows, lane);
        stream.load(weights[d], lane);
        if (++chunk == chunks) {
          store_tile<kFormat, kEpilogue, kBias, kNt, kMt>(p, tile, scale, group, acc, lane);
          clear<kNt, kMt>(acc);
          chunk = 0;
          group += kMt;
        }
      }
    }
  } else {
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < chunks) loader.load(s, ring + s * kStageBytes);
      commit_copies();
    }
    u32 read = 0, write = (kStages - 1) * kStageBytes;
    for (int done = 0; done < chunks; done += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const int chunk = done + d;
        if (chunk >= chunks) break;
        wait_for_copies<kStages - 2>();
        __syncthreads();
        if (chunk + kStages - 1 < chunks) loader.load(chunk + kStages - 1, ring + write);
        commit_copies();
        multiply_chunk<kFormat, kNt, kMt>(acc, weights[d], ring + read, tile.rows, lane);
        stream.load(weights[d], lane);
        read = read + kStageBytes == kStages * kStageBytes ? 0 : read + kStageBytes;
        write = write + kStageBytes == kStages * kStageBytes ? 0 : write + kStageBytes;
      }
    }
    store_tile<kFormat, kEpilogue, kBias, kNt, kMt>(p, tile, scale, first_group, acc, lane);
  }
}

}  // namespace moetune::kernels

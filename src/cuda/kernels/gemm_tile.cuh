// The GEMM of prefill: many tokens per expert.
//
// As in gemm_stream, weight rows are the M of mma.m16n8k16 and tokens its N, so that one packed
// layout serves both and the registers of a 16-byte load are an operand as they stand. A tile of
// kNt tokens is gathered into shared memory; every warp multiplies kMt row groups, whose weights it
// streams straight into registers, with kNt / kWt of the tokens. (kWt = 2: the two warps that want
// the same weights meet in L1.)
//
// With kResident the tile's whole k lies in shared memory, and the block works through p.sets sets
// of row groups with no barrier. Otherwise chunks of 64 k go through a ring of kStages, with one
// barrier a chunk.
//
// grid.x: blocks of kWm * kMt * sets row groups; grid.y: token tiles (those past the real count
// leave). Blocks of one tile, and then of one expert, are neighbours and meet in L2.
#pragma once

#include "cuda/kernels/epilogue.cuh"
#include "cuda/kernels/weights.cuh"

namespace moetune::kernels {

constexpr int kChunkRowBytes = kUnitK * 2;

// Gathers a token tile chunk by chunk. Rows past the tile's end and values past k are zeros. Of a
// row's eight 16-byte vectors, v lies at place v ^ (row & 7): no bank conflicts when a warp reads
// fragments.
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
      offset_[i] =
          u32(p.row_index ? p.row_index[sorted] : sorted) * u32(p.input_stride / 8) + vector_;
    }
  }

  __device__ void load(int chunk, u32 stage) const {
    const int k = chunk * kUnitK;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = row(i);
      if (kNt % (kThreads / 8) != 0 && r >= kNt) continue;
      const bool live = live_[i] && k + vector_ * 8 < k_;
      copy_async(stage + r * kChunkRowBytes + ((vector_ ^ (r & 7)) << 4),
                 input_ + (live ? i64(offset_[i]) * 8 + k : 0), live);
    }
  }

 private:
  static constexpr int kRows = (kNt + kThreads / 8 - 1) / (kThreads / 8);
  __device__ static int row(int i) { return i * (kThreads / 8) + (threadIdx.x >> 3); }

  const u16* input_;
  u32 offset_[kRows];  // of 16 bytes
  bool live_[kRows];
  int vector_, k_;
};

// 16 tokens, columns n and n + 1 of the sums, times half a chunk of kMt row groups.
template <int kMt, int kNb>
__device__ inline void multiply_columns(Sums<kMt, kNb>& acc, int n, const u32 (&a)[kMt][2][4],
                                        u32 tokens_at) {
  u32 b[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) load_shared(b[i], tokens_at + i * 8 * kChunkRowBytes);
#pragma unroll
  for (int s = 0; s < 2; ++s)
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int m = 0; m < kMt; ++m)
        mma(acc[m][n + i], a[m][s][0], a[m][s][1], a[m][s][2], a[m][s][3], b[i][2 * s],
            b[i][2 * s + 1]);
}

template <int kTerm, int kFormat, bool kShared, int kMt>
__device__ inline void all_fragments(u32 (&a)[kMt][2][4],
                                     const WeightUnit<kFormat, kShared> (&weights)[kMt], int half) {
#pragma unroll
  for (int m = 0; m < kMt; ++m) weights[m].template fragments<kTerm>(half, a[m]);
}

// One chunk of 64 k for one warp. Tokens past the tile's end are left out, 16 at a time.
template <int kFormat, int kMt, int kNb, bool kShared>
__device__ inline void multiply_chunk(Sums<kMt, kNb>& acc,
                                      const WeightUnit<kFormat, kShared> (&weights)[kMt],
                                      const TokenScales<kFormat, kNb>& scales, int chunk, u32 stage,
                                      int tokens, int lane) {
  const int g = lane >> 2, j = lane & 3;
  auto tokens_at = [&](int half, int n) {
    return stage + g * kChunkRowBytes + (((2 * j + half) ^ g) << 4) + n * 8 * kChunkRowBytes;
  };
  if constexpr (has_block_scales(kFormat)) {
    u32 a[2][kMt][2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) all_fragments<0>(a[half], weights, half);
#pragma unroll
    for (int n = 0; n < kNb; n += 2) {
      if (n * 8 >= tokens) break;
      Sums<kMt, 2> part = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) multiply_columns(part, 0, a[half], tokens_at(half, n));
#pragma unroll
      for (int m = 0; m < kMt; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          add_scaled(acc[m][n + i], part[m][i], weights[m], scales.at(chunk, n + i, 0),
                     scales.at(chunk, n + i, 1));
    }
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 a[kMt][2][4];
      auto multiply = [&] {
#pragma unroll
        for (int n = 0; n < kNb; n += 2) {
          if (n * 8 >= tokens) break;
          multiply_columns(acc, n, a, tokens_at(half, n));
        }
      };
      all_fragments<0>(a, weights, half);
      multiply();
      if constexpr (WeightUnit<kFormat>::kTerms == 2) {
        all_fragments<1>(a, weights, half);
        multiply();
      }
    }
  }
}

template <int kFormat, int kEpilogue, bool kBias, int kNt, int kMt, int kWm, int kWt, int kDepth,
          int kStages, bool kResident, int kMinBlocks>
__global__ void __launch_bounds__(32 * kWm * kWt, kMinBlocks) gemm_tile(const GemmParams p) {
  constexpr int kStageBytes = kNt * kChunkRowBytes, kNb = kNt / kWt / 8;
  extern __shared__ __align__(128) u8 shared[];

  wait_for_previous();
  let_next_start();
  const Tile tile = p.tiles[blockIdx.y];
  if (blockIdx.y >= *p.tile_count) return;

  const u32 ring = shared_address(shared);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp / kWt, chunks = p.units;
  const int first_token = warp % kWt * kNb * 8, tokens = tile.rows - first_token;
  const u32 own_rows = ring + first_token * kChunkRowBytes;
  const int wanted = kResident ? p.sets : 1, first_group = (blockIdx.x * kWm + wm) * kMt * wanted;
  const int sets = max(0, min(wanted, (p.groups - first_group + kMt - 1) / kMt));

  WeightStream<kFormat, kMt, kResident, kWt != 1> stream(
      p.weights + tile.expert * p.expert_bytes, first_group, p.groups, 0, chunks, chunks, sets);
  WeightUnit<kFormat, kWt != 1> weights[kDepth][kMt];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) stream.load(weights[d], lane);

  const TileLoader<kNt, 32 * kWm * kWt> loader(p, tile);
  const OutputScale<kFormat> scale(p.scales, tile.expert);
  const TokenScales<kFormat, kNb> token_scales(p, tile, first_token, lane);
  Sums<kMt, kNb> acc = {};

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
        multiply_chunk<kFormat, kMt, kNb>(acc, weights[d], token_scales, chunk,
                                          own_rows + chunk * kStageBytes, tokens, lane);
        stream.load(weights[d], lane);
        if (++chunk == chunks) {
          store_set<kFormat, kEpilogue, kBias>(p, tile, scale, group, first_token, acc, lane);
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
        multiply_chunk<kFormat, kMt, kNb>(acc, weights[d], token_scales, chunk, own_rows + read,
                                          tokens, lane);
        stream.load(weights[d], lane);
        read = read + kStageBytes == kStages * kStageBytes ? 0 : read + kStageBytes;
        write = write + kStageBytes == kStages * kStageBytes ? 0 : write + kStageBytes;
      }
    }
    store_set<kFormat, kEpilogue, kBias>(p, tile, scale, first_group, first_token, acc, lane);
  }
}

}  // namespace moetune::kernels

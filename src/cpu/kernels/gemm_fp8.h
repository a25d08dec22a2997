// The fp8 kernels, of both fp8 formats.
//
// An e4m3 value is exact in f32 and in bf16, but its product with an f32 scale is not in bf16, and
// one multiplication a weight would cost as much as a token. So sums of a group, 128 values of k,
// are of the values alone, in registers, and enter c under the group's scale.
#pragma once

#include "cpu/kernels/gemm_body.h"

namespace moetune::cpu {
namespace {

constexpr int kFp8PairBytes = kPanelRows * 2;
constexpr int kFp8BlockPairs = kBlock / 2;

// What a format of pairs is to the kernels of gemm_body.h.
struct Fp8 {
  template <int i>
  static Weight item(const uint8_t* p, int vec) {
    return Simd::e4m3_item<i>(p + vec * Simd::kLanes * 2);
  }
};

inline int fp8_group_blocks(int blocks_left) {
  return blocks_left < kFp8Stream.group_blocks ? blocks_left : kFp8Stream.group_blocks;
}

// Of the rows of a vector, which are in one half of the panel. Items are worth 2^-8.
inline float fp8_scale(const uint8_t* group, int vec) {
  float scale;
  __builtin_memcpy(&scale, group + vec * Simd::kLanes / kHalfRows * sizeof(scale), sizeof(scale));
  return scale * 256.f;
}

// x_scales: of the group, a token each; or null.
template <int M, int V>
inline __attribute__((always_inline)) void add_scaled(const Accumulators<M, V>& acc,
                                                      const Vec (&scales)[V], const float* x_scales,
                                                      float* c) {
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    const Vec x_scale = Simd::set1(x_scales == nullptr ? 1.f : x_scales[m]);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* const out = c + m * kPanelRows + v * Simd::kLanes;
      Simd::store(out, Simd::fma(acc.value[m][v], scales[v] * x_scale, Simd::load(out)));
    }
  }
}

// Those of the group that begins at `block`.
template <int M>
inline const float* x_scales_of(const TileArgs& args, int block) {
  return args.x_scales == nullptr ? nullptr : args.x_scales + block / kFp8Stream.group_blocks * M;
}

// ---- Direct ----

// V vectors of rows of one group.
template <int M, int V>
inline __attribute__((always_inline)) void add_fp8_group(const TileArgs& args, const uint8_t* group,
                                                         int pairs, int first, const uint32_t* x,
                                                         const float* x_scales) {
  Accumulators<M, V> acc;
  acc.clear();
  const uint8_t* p = group + kFp8Stream.header_bytes;
  const int ahead_bytes = first == 0 ? kFp8PairBytes : 0;
  for (int pair = 0; pair < pairs; ++pair, p += kFp8PairBytes, x += kPairItems * M) {
    prefetch_lines(p + args.prefetch_bytes, ahead_bytes);
    add_pair<Fp8>(p, first, x, acc);
  }
  Vec scales[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) scales[v] = Simd::set1(fp8_scale(group, first + v));
  add_scaled(acc, scales, x_scales, args.c + first * Simd::kLanes);
}

template <int M>
void tile_fp8_rows(const TileArgs& args) {
  constexpr int V = M <= Simd::kWideTile ? kPanelVecs : kHalfVecs;
  clear_unless_accumulating<M, kPanelVecs>(args, 0);
  const uint8_t* group = args.weights;
  const uint32_t* x = args.x;
  for (int block = 0; block < args.k_blocks; block += kFp8Stream.group_blocks) {
    const int blocks = fp8_group_blocks(args.k_blocks - block);
    prefetch_lines(group + args.prefetch_bytes, kFp8Stream.header_bytes);
#pragma GCC unroll 1
    for (int v = 0; v < kPanelVecs; v += V)
      add_fp8_group<M, V>(args, group, blocks * kFp8BlockPairs, v, x, x_scales_of<M>(args, block));
    group += kFp8Stream.header_bytes + blocks * kFp8Stream.block_bytes;
    x += blocks * kBlockItems * M;
  }
}

template <int M>
void tile_fp8_tokens(const TileArgs& args) {
  if (args.tokens == M) {
    tile_fp8_rows<M>(args);
  } else if constexpr (M > 1) {
    tile_fp8_tokens<M - 1>(args);
  }
}

void tile_fp8(const TileArgs* args) { tile_fp8_tokens<Simd::kMaxTile>(*args); }

// ---- Staged: per group of blocks and group of kTileVecs vectors of rows their scales, then their
// items ----

void stage_fp8(const StageArgs* args) {
  const uint8_t* p = args->weights;
  uint32_t* out = args->out;
  for (int block = 0; block < args->k_blocks; block += kFp8Stream.group_blocks) {
    const int pairs = fp8_group_blocks(args->k_blocks - block) * kFp8BlockPairs;
    prefetch_lines(p + args->prefetch_bytes, ahead_bytes(*args, kFp8Stream.header_bytes));
    for (int v = 0; v < kTileVecs; ++v)
      Simd::store(reinterpret_cast<float*>(out) + v * Simd::kLanes,
                  Simd::set1(fp8_scale(p, args->group * kTileVecs + v)));
    p += kFp8Stream.header_bytes;
    out += kItemStride;
    for (int i = 0; i < pairs; ++i, p += kFp8PairBytes, out += kPairItems * kItemStride) {
      prefetch_lines(p + args->prefetch_bytes, ahead_bytes(*args, kFp8PairBytes));
      stage_pair<Fp8>(p, args->group, out);
    }
  }
}

template <int M>
void tile_staged_fp8_rows(const TileArgs& args) {
  constexpr int V = kTileVecs;
  clear_unless_accumulating<M, V>(args, args.group * V);
  const uint32_t* p = reinterpret_cast<const uint32_t*>(args.weights);
  const uint32_t* x = args.x;
  for (int block = 0; block < args.k_blocks; block += kFp8Stream.group_blocks) {
    const int items = fp8_group_blocks(args.k_blocks - block) * kBlockItems;
    Accumulators<M, V> acc;
    acc.clear();
    add_staged(p + kItemStride, items, x, acc);
    Vec scales[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      scales[v] = Simd::load(reinterpret_cast<const float*>(p) + v * Simd::kLanes);
    add_scaled(acc, scales, x_scales_of<M>(args, block), args.c + args.group * kItemStride);
    p += (1 + items) * kItemStride;
    x += items * M;
  }
}

template <int M>
void tile_staged_fp8_tokens(const TileArgs& args) {
  if (args.tokens == M) {
    tile_staged_fp8_rows<M>(args);
  } else if constexpr (M > 1) {
    tile_staged_fp8_tokens<M - 1>(args);
  }
}

void tile_staged_fp8(const TileArgs* args) { tile_staged_fp8_tokens<Simd::kMaxTile>(*args); }

}  // namespace
}  // namespace moetune::cpu

// The matrix kernels, written once over `Simd`. Each kernel file defines its own Simd and includes
// this; everything is in an unnamed namespace, so each file gets its own copy, compiled with its
// own flags.
//
// How a tile is computed. Lanes are weight rows, so that activations are broadcast and sums need no
// reduction across lanes. Feeding weights straight from the packed stream ("direct") converts them
// in registers and pays the conversion once per tile of tokens; staging converts a piece of a panel
// once into a scratch that stays in the nearest cache.
#pragma once

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

using Vec = Simd::Vec;
using Weight = Simd::Weight;

constexpr int kVecBytes = Simd::kLanes * 4;
constexpr int kPanelVecs = kPanelRows / Simd::kLanes;
constexpr int kHalfVecs = kHalfRows / Simd::kLanes;
constexpr bool kAlwaysWide = Simd::kWideTile == Simd::kMaxTile;
constexpr int kTileVecs = kAlwaysWide ? kPanelVecs : kHalfVecs;
constexpr int kBlockItems = kBlock / Simd::kValuesPerItem;
constexpr int kPairItems = 2 / Simd::kValuesPerItem;
constexpr int kChunkItems = 8 / Simd::kValuesPerItem;
constexpr int kPairBytes = kPanelRows * 4;
constexpr int kChunkBytes = kPanelRows * 4;  // Eight codes of four bits per row.
constexpr int kParts = 2;

inline void prefetch_lines(const uint8_t* p, int bytes) {
#pragma GCC unroll 4
  for (int offset = 0; offset < bytes; offset += 64) __builtin_prefetch(p + offset);
}

// Of an nvfp4 panel's vector `vec`.
inline const uint8_t* scales_of(const uint8_t* group, int block, int vec) {
  const int row = vec * Simd::kLanes;
  return group + row / kHalfRows * (kScaleGroupBytes / 2) + block * kHalfRows + row % kHalfRows;
}

// ---- The accumulators of M tokens x V vectors of rows, from vector `first` of the panel on ----

template <int M, int V>
struct Accumulators {
  Vec value[M][V];

  inline __attribute__((always_inline)) void load(const TileArgs& args, int first) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        value[m][v] = args.accumulate
                          ? Simd::load(args.c + m * kPanelRows + (first + v) * Simd::kLanes)
                          : Simd::set1(0.f);
  }
  inline __attribute__((always_inline)) void add(const Weight (&w)[V], const uint32_t* x) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Weight item = Simd::broadcast(x + m);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) value[m][v] = Simd::multiply_add(w[v], item, value[m][v]);
    }
  }
  inline __attribute__((always_inline)) void store(const TileArgs& args, int first) const {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        Simd::store(args.c + m * kPanelRows + (first + v) * Simd::kLanes, value[m][v]);
  }
};

// ---- bf16, direct ----

template <int i, int V>
inline __attribute__((always_inline)) void load_pair_items(const uint8_t* p, Weight (&w)[V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) w[v] = Simd::pair_item<i>(p + v * kVecBytes);
}

template <int M, int V>
void tile_bf16_rows(const TileArgs& args, int first) {
  Accumulators<M, V> acc;
  acc.load(args, first);
  const uint8_t* p = args.weights + first * kVecBytes;
  const uint8_t* const end = p + static_cast<int64_t>(args.k_blocks) * kBf16BlockBytes;
  const uint32_t* x = args.x;
  for (; p != end; p += kPairBytes, x += kPairItems * M) {
    prefetch_lines(p + args.prefetch_bytes, V * kVecBytes);
    Weight w[V];
    load_pair_items<0>(p, w);
    acc.add(w, x);
    if constexpr (kPairItems == 2) {
      // The pairs are loaded once more: kept, they would take registers that the sums need.
      asm volatile("" ::: "memory");
      load_pair_items<1>(p, w);
      acc.add(w, x + M);
    }
  }
  acc.store(args, first);
}

template <int M>
void tile_bf16_tokens(const TileArgs& args) {
  if (args.tokens != M) {
    if constexpr (M > 1) tile_bf16_tokens<M - 1>(args);
  } else if constexpr (M <= Simd::kWideTile) {
    tile_bf16_rows<M, kPanelVecs>(args, 0);
  } else {
    tile_bf16_rows<M, kHalfVecs>(args, 0);
    tile_bf16_rows<M, kHalfVecs>(args, kHalfVecs);
  }
}

void tile_bf16(const TileArgs* args) { tile_bf16_tokens<Simd::kMaxTile>(*args); }

// ---- Staging one group of kTileVecs vectors of rows: [items][kTileVecs vectors] ----

constexpr int kItemStride = kTileVecs * Simd::kLanes;

// The first of several groups prefetches for all of them.
inline int ahead_bytes(const StageArgs& args, int bytes) { return args.group == 0 ? bytes : 0; }

void stage_bf16(const StageArgs* args) {
  const uint8_t* p = args->weights;
  const uint8_t* const end = p + static_cast<int64_t>(args->k_blocks) * kBf16BlockBytes;
  uint32_t* out = args->out;
  for (; p != end; p += kPairBytes, out += kPairItems * kItemStride) {
    prefetch_lines(p + args->prefetch_bytes, ahead_bytes(*args, kPairBytes));
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) {
      const uint8_t* pairs = p + (args->group * kTileVecs + v) * kVecBytes;
      Simd::store_weight(out + v * Simd::kLanes, Simd::pair_item<0>(pairs));
      if constexpr (kPairItems == 2)
        Simd::store_weight(out + kItemStride + v * Simd::kLanes, Simd::pair_item<1>(pairs));
    }
  }
}

template <int M>
void tile_staged_rows(const TileArgs& args) {
  const int first = args.group * kTileVecs;
  Accumulators<M, kTileVecs> acc;
  acc.load(args, first);
  const uint32_t* p = reinterpret_cast<const uint32_t*>(args.weights);
  const uint32_t* const end = p + static_cast<int64_t>(args.k_blocks) * kBlockItems * kItemStride;
  const uint32_t* x = args.x;
#pragma GCC unroll 4
  for (; p != end; p += kItemStride, x += M) {
    Weight w[kTileVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVecs; ++v) w[v] = Simd::load_weight(p + v * Simd::kLanes);
    acc.add(w, x);
  }
  acc.store(args, first);
}

template <int M>
void tile_staged_tokens(const TileArgs& args) {
  if (args.tokens == M) {
    tile_staged_rows<M>(args);
  } else if constexpr (M > 1) {
    tile_staged_tokens<M - 1>(args);
  }
}

void tile_staged(const TileArgs* args) { tile_staged_tokens<Simd::kMaxTile>(*args); }

}  // namespace
}  // namespace moetune::cpu

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
constexpr int kPairBytes = kPanelRows * 4;  // Of 16-bit values.

inline void prefetch_lines(const uint8_t* p, int bytes) {
#pragma GCC unroll 4
  for (int offset = 0; offset < bytes; offset += 64) __builtin_prefetch(p + offset);
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
  inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) value[m][v] = Simd::set1(0.f);
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

// c = 0 for V vectors of rows from `first` on, where a tile begins its sums.
template <int M, int V>
inline void clear_unless_accumulating(const TileArgs& args, int first) {
  if (args.accumulate) return;
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      Simd::store(args.c + m * kPanelRows + (first + v) * Simd::kLanes, Simd::set1(0.f));
}

// ---- 16-bit values, direct ----

// What the kernels need to know of a format of 16-bit values: where the V vectors of rows from
// `first` on lie in a pair of k, and one of its items.
struct Bf16 {
  // Lines of the pair that V vectors of rows are in.
  template <int V>
  static void prefetch(const uint8_t* p, int first) {
    prefetch_lines(p + first * kVecBytes, V * kVecBytes);
  }
  template <int i>
  static Weight item(const uint8_t* p, int vec) {
    return Simd::pair_item<i>(p + vec * kVecBytes);
  }
};

template <typename Format, int i, int V>
inline __attribute__((always_inline)) void load_items(const uint8_t* p, int first, Weight (&w)[V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) w[v] = Format::template item<i>(p, first + v);
}

// One pair of k.
template <typename Format, int M, int V>
inline __attribute__((always_inline)) void add_pair(const uint8_t* p, int first, const uint32_t* x,
                                                    Accumulators<M, V>& acc) {
  Weight w[V];
  load_items<Format, 0>(p, first, w);
  acc.add(w, x);
  if constexpr (kPairItems == 2) {
    // The pairs are loaded once more: kept, they would take registers that the sums need.
    asm volatile("" ::: "memory");
    load_items<Format, 1>(p, first, w);
    acc.add(w, x + M);
  }
}

template <typename Format, int M, int V>
void tile_halves_rows(const TileArgs& args, int first) {
  Accumulators<M, V> acc;
  acc.load(args, first);
  const uint8_t* p = args.weights;
  const uint8_t* const end = p + static_cast<int64_t>(args.k_blocks) * kHalvesStream.block_bytes;
  const uint32_t* x = args.x;
  for (; p != end; p += kPairBytes, x += kPairItems * M) {
    Format::template prefetch<V>(p + args.prefetch_bytes, first);
    add_pair<Format>(p, first, x, acc);
  }
  acc.store(args, first);
}

template <typename Format, int M>
void tile_halves_tokens(const TileArgs& args) {
  if (args.tokens != M) {
    if constexpr (M > 1) tile_halves_tokens<Format, M - 1>(args);
  } else if constexpr (M <= Simd::kWideTile) {
    tile_halves_rows<Format, M, kPanelVecs>(args, 0);
  } else {
    tile_halves_rows<Format, M, kHalfVecs>(args, 0);
    tile_halves_rows<Format, M, kHalfVecs>(args, kHalfVecs);
  }
}

template <typename Format>
void tile_halves(const TileArgs* args) {
  tile_halves_tokens<Format, Simd::kMaxTile>(*args);
}

// ---- Staging one group of kTileVecs vectors of rows: [items][kTileVecs vectors] ----

constexpr int kItemStride = kTileVecs * Simd::kLanes;

// The first of several groups prefetches for all of them.
inline int ahead_bytes(const StageArgs& args, int bytes) { return args.group == 0 ? bytes : 0; }

// One pair of k.
template <typename Format>
inline __attribute__((always_inline)) void stage_pair(const uint8_t* p, int group, uint32_t* out) {
#pragma GCC unroll 8
  for (int v = 0; v < kTileVecs; ++v) {
    const int vec = group * kTileVecs + v;
    Simd::store_weight(out + v * Simd::kLanes, Format::template item<0>(p, vec));
    if constexpr (kPairItems == 2)
      Simd::store_weight(out + kItemStride + v * Simd::kLanes, Format::template item<1>(p, vec));
  }
}

template <typename Format>
void stage_halves(const StageArgs* args) {
  const uint8_t* p = args->weights;
  const uint8_t* const end = p + static_cast<int64_t>(args->k_blocks) * kHalvesStream.block_bytes;
  uint32_t* out = args->out;
  for (; p != end; p += kPairBytes, out += kPairItems * kItemStride) {
    prefetch_lines(p + args->prefetch_bytes, ahead_bytes(*args, kPairBytes));
    stage_pair<Format>(p, args->group, out);
  }
}

// `items` items along k.
template <int M>
inline __attribute__((always_inline)) void add_staged(const uint32_t* p, int64_t items,
                                                      const uint32_t* x,
                                                      Accumulators<M, kTileVecs>& acc) {
  const uint32_t* const end = p + items * kItemStride;
#pragma GCC unroll 4
  for (; p != end; p += kItemStride, x += M) {
    Weight w[kTileVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVecs; ++v) w[v] = Simd::load_weight(p + v * Simd::kLanes);
    acc.add(w, x);
  }
}

template <int M>
void tile_staged_rows(const TileArgs& args) {
  const int first = args.group * kTileVecs;
  Accumulators<M, kTileVecs> acc;
  acc.load(args, first);
  add_staged(reinterpret_cast<const uint32_t*>(args.weights),
             static_cast<int64_t>(args.k_blocks) * kBlockItems, args.x, acc);
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

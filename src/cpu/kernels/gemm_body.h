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

// ---- nvfp4, direct ----

inline const uint8_t* scales_of(const uint8_t* group, int block, int vec) {
  const int row = vec * Simd::kLanes;
  return group + row / kHalfRows * (kScaleGroupBytes / 2) + block * kHalfRows + row % kHalfRows;
}

// Sums of one block for one vector of rows, before its scale. A block is a short chain of dependent
// additions; with few tokens two chains per token keep the multipliers busy.
template <int M>
struct BlockSums {
  static constexpr int kChains = M < 4 ? 2 : 1;
  Vec value[kChains][M];

  template <int part>
  inline __attribute__((always_inline)) void add(Simd::Codes codes, const uint32_t* x) {
    Weight w[Simd::kPartItems];
    Simd::decode<part>(codes, w);
#pragma GCC unroll 4
    for (int i = 0; i < Simd::kPartItems; ++i)
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        Vec& sum = value[i % kChains][m];
        sum = Simd::multiply_add(w[i], Simd::broadcast(x + Simd::item_index(part, i) * M + m), sum);
      }
  }
};

template <int M>
inline __attribute__((always_inline)) void add_nvfp4_block(const uint8_t* codes,
                                                           const uint8_t* scales, const uint32_t* x,
                                                           float* c) {
  BlockSums<M> sums;
  for (auto& chain : sums.value)
    for (Vec& sum : chain) sum = Simd::set1(0.f);
#pragma GCC unroll 2
  for (int chunk = 0; chunk < 2; ++chunk) {
    const Simd::Codes eight = Simd::load_codes(codes + chunk * kChunkBytes);
    sums.template add<0>(eight, x + chunk * kChunkItems * M);
    sums.template add<1>(eight, x + chunk * kChunkItems * M);
  }
  const Vec scale = Simd::load_scales(scales);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    Vec sum = sums.value[0][m];
    if constexpr (BlockSums<M>::kChains == 2) sum = sum + sums.value[1][m];
    Simd::store(c + m * kPanelRows, Simd::fma(sum, scale, Simd::load(c + m * kPanelRows)));
  }
}

template <int M>
void tile_nvfp4_rows(const TileArgs& args) {
  if (!args.accumulate)
    for (int i = 0; i < M * kPanelRows; ++i) args.c[i] = 0.f;
  const uint8_t* group = args.weights;
  const uint32_t* x = args.x;
  for (int block = 0; block < args.k_blocks; block += kScaleGroup) {
    const int blocks = args.k_blocks - block < kScaleGroup ? args.k_blocks - block : kScaleGroup;
    const uint8_t* codes = group + kScaleGroupBytes;
    prefetch_lines(group + args.prefetch_bytes, kScaleGroupBytes);
    for (int b = 0; b < blocks; ++b, codes += kNvfp4BlockBytes, x += kBlockItems * M) {
      prefetch_lines(codes + args.prefetch_bytes, kNvfp4BlockBytes);
#pragma GCC unroll 1
      for (int v = 0; v < kPanelVecs; ++v)
        add_nvfp4_block<M>(codes + v * kVecBytes, scales_of(group, b, v), x,
                           args.c + v * Simd::kLanes);
    }
    group = codes;
  }
}

template <int M>
void tile_nvfp4_tokens(const TileArgs& args) {
  if (args.tokens == M) {
    tile_nvfp4_rows<M>(args);
  } else if constexpr (M > 1) {
    tile_nvfp4_tokens<M - 1>(args);
  }
}

void tile_nvfp4(const TileArgs* args) { tile_nvfp4_tokens<Simd::kMaxTile>(*args); }

// ---- Staging: [kPanelVecs / kTileVecs][items][kTileVecs vectors] ----

inline uint32_t* staged_at(const StageArgs& args, int vec, int64_t item) {
  const int64_t items = static_cast<int64_t>(args.k_blocks) * kBlockItems;
  return args.out + ((vec / kTileVecs * items + item) * kTileVecs + vec % kTileVecs) * Simd::kLanes;
}

void stage_bf16(const StageArgs* args) {
  const uint8_t* p = args->weights;
  const int64_t items = static_cast<int64_t>(args->k_blocks) * kBlockItems;
  for (int64_t item = 0; item < items; item += kPairItems, p += kPairBytes) {
    prefetch_lines(p + args->prefetch_bytes, kPairBytes);
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVecs; ++v) {
      uint32_t* out = staged_at(*args, v, item);
      Simd::store_weight(out, Simd::pair_item<0>(p + v * kVecBytes));
      if constexpr (kPairItems == 2)
        Simd::store_weight(out + kTileVecs * Simd::kLanes, Simd::pair_item<1>(p + v * kVecBytes));
    }
  }
}

template <int part>
inline __attribute__((always_inline)) void stage_part(Simd::Codes codes, Vec scale, uint32_t* out) {
  Weight w[Simd::kPartItems];
  Simd::decode<part>(codes, w);
#pragma GCC unroll 4
  for (int i = 0; i < Simd::kPartItems; ++i)
    Simd::store_weight(out + Simd::item_index(part, i) * kTileVecs * Simd::kLanes,
                       Simd::scaled(w[i], scale));
}

void stage_nvfp4(const StageArgs* args) {
  const uint8_t* group = args->weights;
  for (int block = 0; block < args->k_blocks; block += kScaleGroup) {
    const int blocks = args->k_blocks - block < kScaleGroup ? args->k_blocks - block : kScaleGroup;
    const uint8_t* codes = group + kScaleGroupBytes;
    prefetch_lines(group + args->prefetch_bytes, kScaleGroupBytes);
    for (int b = 0; b < blocks; ++b, codes += kNvfp4BlockBytes) {
      prefetch_lines(codes + args->prefetch_bytes, kNvfp4BlockBytes);
#pragma GCC unroll 1
      for (int v = 0; v < kPanelVecs; ++v) {
        const Vec scale = Simd::load_scales(scales_of(group, b, v));
#pragma GCC unroll 2
        for (int chunk = 0; chunk < 2; ++chunk) {
          const Simd::Codes eight = Simd::load_codes(codes + chunk * kChunkBytes + v * kVecBytes);
          uint32_t* out = staged_at(*args, v, (block + b) * kBlockItems + chunk * kChunkItems);
          stage_part<0>(eight, scale, out);
          stage_part<1>(eight, scale, out);
        }
      }
    }
    group = codes;
  }
}

template <int M>
void tile_staged_rows(const TileArgs& args, int first, const uint32_t* p) {
  Accumulators<M, kTileVecs> acc;
  acc.load(args, first);
  const int64_t items = static_cast<int64_t>(args.k_blocks) * kBlockItems;
  const uint32_t* const end = p + items * kTileVecs * Simd::kLanes;
  const uint32_t* x = args.x;
#pragma GCC unroll 4
  for (; p != end; p += kTileVecs * Simd::kLanes, x += M) {
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
    const int64_t items = static_cast<int64_t>(args.k_blocks) * kBlockItems;
    const uint32_t* p = reinterpret_cast<const uint32_t*>(args.weights);
    for (int first = 0; first < kPanelVecs;
         first += kTileVecs, p += items * kTileVecs * Simd::kLanes)
      tile_staged_rows<M>(args, first, p);
  } else if constexpr (M > 1) {
    tile_staged_tokens<M - 1>(args);
  }
}

void tile_staged(const TileArgs* args) { tile_staged_tokens<Simd::kMaxTile>(*args); }

}  // namespace
}  // namespace moetune::cpu

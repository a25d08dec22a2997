// The fp4 kernels that make floating-point numbers of the codes: f32, or pairs of bf16.
#pragma once

#include "cpu/kernels/fp4_formats.h"
#include "cpu/kernels/gemm_body.h"
#include "cpu/kernels/probe_body.h"
#include "cpu/kernels/row_body.h"

namespace moetune::cpu {
namespace {

template <typename Format>
inline Vec whole_scales(const uint8_t* group, int block, int vec) {
  return load_scales<Format>(group, block, vec) * Simd::set1(256.f);
}

// ---- Direct ----

// Sums of one block for M tokens x V vectors of rows, before its scales. With one or two tokens the
// V vectors share the activations, in registers; with more there are none left for that.
template <int M, int V>
struct BlockSums {
  Vec value[V][M];

  template <int part>
  inline __attribute__((always_inline)) void add(const uint8_t* codes, const uint32_t* x) {
    Weight items[Simd::kPartItems][M];
    if constexpr (V > 1) load_items<part>(x, items);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      Weight w[Simd::kPartItems];
      Simd::decode<part>(Simd::load_codes(codes + v * kVecBytes), w);
#pragma GCC unroll 4
      for (int i = 0; i < Simd::kPartItems; ++i)
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const Weight item =
              V > 1 ? items[i][m] : Simd::broadcast(x + Simd::item_index(part, i) * M + m);
          value[v][m] = Simd::multiply_add(w[i], item, value[v][m]);
        }
    }
  }

 private:
  template <int part>
  static inline __attribute__((always_inline)) void load_items(
      const uint32_t* x, Weight (&items)[Simd::kPartItems][M]) {
#pragma GCC unroll 4
    for (int i = 0; i < Simd::kPartItems; ++i)
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
        items[i][m] = Simd::broadcast(x + Simd::item_index(part, i) * M + m);
  }
};

// `first`: the first of the V vectors within the panel.
template <typename Format, int M, int V>
inline __attribute__((always_inline)) void add_fp4_block(const uint8_t* group, int block,
                                                         const uint8_t* codes, int first,
                                                         const uint32_t* x, float* c) {
  BlockSums<M, V> sums;
  for (auto& vector : sums.value)
    for (Vec& sum : vector) sum = Simd::set1(0.f);
#pragma GCC unroll 2
  for (int chunk = 0; chunk < 2; ++chunk) {
    const uint8_t* eight = codes + chunk * kChunkBytes + first * kVecBytes;
    sums.template add<0>(eight, x + chunk * kChunkItems * M);
    sums.template add<1>(eight, x + chunk * kChunkItems * M);
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    const Vec scale = whole_scales<Format>(group, block, first + v);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      float* const out = c + m * kPanelRows + (first + v) * Simd::kLanes;
      Simd::store(out, Simd::fma(sums.value[v][m], scale, Simd::load(out)));
    }
  }
}

template <typename Format, int M>
void tile_fp4_rows(const TileArgs& args) {
  constexpr int kShare = M > 2 ? 1 : kPanelVecs < 4 ? kPanelVecs : 4;
  clear_unless_accumulating<M, kPanelVecs>(args, 0);
  constexpr StreamFormat kFormat = Format::kStream;
  const uint8_t* group = args.weights;
  const uint32_t* x = args.x;
  for (int block = 0; block < args.k_blocks; block += kFormat.group_blocks) {
    const int blocks = group_size<Format>(args.k_blocks - block);
    const uint8_t* codes = group + kFormat.header_bytes;
    prefetch_lines(group + args.prefetch_bytes, kFormat.header_bytes);
    for (int b = 0; b < blocks; ++b, codes += kFormat.block_bytes, x += kBlockItems * M) {
      prefetch_lines(codes + args.prefetch_bytes, kFormat.block_bytes);
#pragma GCC unroll 1
      for (int v = 0; v < kPanelVecs; v += kShare)
        add_fp4_block<Format, M, kShare>(group, b, codes, v, x, args.c);
    }
    group = codes;
  }
}

template <typename Format, int M>
void tile_fp4_tokens(const TileArgs& args) {
  if (args.tokens == M) {
    tile_fp4_rows<Format, M>(args);
  } else if constexpr (M > 1) {
    tile_fp4_tokens<Format, M - 1>(args);
  }
}

template <typename Format>
void tile_fp4(const TileArgs* args) {
  tile_fp4_tokens<Format, Simd::kMaxTile>(*args);
}

// ---- Staging, for tile_staged ----

template <int part>
inline __attribute__((always_inline)) void stage_part(Simd::Codes codes, Vec scale, uint32_t* out) {
  Weight w[Simd::kPartItems];
  Simd::decode<part>(codes, w);
#pragma GCC unroll 4
  for (int i = 0; i < Simd::kPartItems; ++i)
    Simd::store_weight(out + Simd::item_index(part, i) * kItemStride, Simd::scaled(w[i], scale));
}

template <typename Format>
void stage_fp4(const StageArgs* args) {
  constexpr StreamFormat kFormat = Format::kStream;
  const uint8_t* group = args->weights;
  uint32_t* out = args->out;
  for (int block = 0; block < args->k_blocks; block += kFormat.group_blocks) {
    const int blocks = group_size<Format>(args->k_blocks - block);
    const uint8_t* codes = group + kFormat.header_bytes;
    prefetch_lines(group + args->prefetch_bytes, ahead_bytes(*args, kFormat.header_bytes));
    for (int b = 0; b < blocks;
         ++b, codes += kFormat.block_bytes, out += kBlockItems * kItemStride) {
      prefetch_lines(codes + args->prefetch_bytes, ahead_bytes(*args, kFormat.block_bytes));
#pragma GCC unroll 1
      for (int v = 0; v < kTileVecs; ++v) {
        const int vec = args->group * kTileVecs + v;
        const Vec scale = whole_scales<Format>(group, b, vec);
#pragma GCC unroll 2
        for (int chunk = 0; chunk < 2; ++chunk) {
          const Simd::Codes eight = Simd::load_codes(codes + chunk * kChunkBytes + vec * kVecBytes);
          uint32_t* at = out + chunk * kChunkItems * kItemStride + v * Simd::kLanes;
          stage_part<0>(eight, scale, at);
          stage_part<1>(eight, scale, at);
        }
      }
    }
    group = codes;
  }
}

template <typename Format>
constexpr FormatKernels fp4_kernels() {
  FormatKernels kernels{};
  kernels.arithmetic = Simd::kValuesPerItem == 2 ? Arithmetic::kBf16Pairs : Arithmetic::kF32;
  kernels.x_block_items = kBlockItems;
  kernels.staged_block_items = kBlockItems * kItemStride;
  kernels.pack_x = pack_x;
  kernels.tile = tile_fp4<Format>;
  kernels.stage = stage_fp4<Format>;
  kernels.tile_staged = tile_staged;
  kernels.multiply = multiply;
  return kernels;
}

}  // namespace
}  // namespace moetune::cpu

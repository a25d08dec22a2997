// The fp4 kernels that multiply integers.
//
// Why: an fp4 value takes more instructions to become f32 than to be multiplied, and with few
// tokens that is most of the work. Twice an fp4 value is an integer of at most 12, which one table
// look-up of bytes gives, and the processor multiplies 16-bit integers in pairs.
//
// How: activations are block floating point (fixed_point.h): of each block of 16 values along k the
// largest exponent, and 16-bit integers in units of it. A block's sum of products is an integer
// below 2^31, so it is exact; it is converted once and enters the f32 sums under the product of
// both scales.
#pragma once

#include "cpu/kernels/fixed_point.h"
#include "cpu/kernels/fp4_formats.h"
#include "cpu/kernels/gemm_body.h"
#include "cpu/kernels/row_body.h"

namespace moetune::cpu {
namespace {

using Fixed = Simd::Fixed;

constexpr int kFixedBlockItems = kFixedPairs + 1;  // Per token: the pairs, then the scale.

// Pair `i` of the two that a part decodes is pair 2i + part of the four in eight k.
constexpr int pair_index(int part, int i) { return 2 * i + part; }

// ---- One block of M tokens x V vectors of rows ----

template <int M, int V>
struct PairSums {
  Fixed value[M][V];

  inline __attribute__((always_inline)) void add(bool first, const Fixed (&w)[V],
                                                 const uint32_t* x) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Fixed pair = Simd::broadcast_pair(x + m);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        value[m][v] =
            first ? Simd::multiply_pairs(w[v], pair) : Simd::add_pairs(w[v], pair, value[m][v]);
    }
  }
  // c += the sums under the rows' scales and those of the tokens.
  inline __attribute__((always_inline)) void finish(const Vec (&scales)[V], const float* x_scales,
                                                    float* c) const {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Vec x_scale = Simd::set1(x_scales[m]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        float* const out = c + m * kPanelRows + v * Simd::kLanes;
        Simd::store(out,
                    Simd::fma(Simd::to_float(value[m][v]), scales[v] * x_scale, Simd::load(out)));
      }
    }
  }
};

inline const float* scales_behind_pairs(const uint32_t* x, int tokens) {
  return reinterpret_cast<const float*>(x + kFixedPairs * tokens);
}

// ---- Direct ----

// Half the codes of eight k: two pairs.
template <int part, int M, int V>
inline __attribute__((always_inline)) void add_part(const uint8_t* codes, bool first,
                                                    const uint32_t* x, PairSums<M, V>& sums) {
  Fixed w[2][V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    Fixed pairs[2];
    Simd::decode_pairs<part>(codes + v * kVecBytes, pairs);
    w[0][v] = pairs[0];
    w[1][v] = pairs[1];
  }
  sums.add(first, w[0], x + pair_index(part, 0) * M);
  sums.add(false, w[1], x + pair_index(part, 1) * M);
}

template <typename Format, int M, int V>
inline __attribute__((always_inline)) void add_block(const uint8_t* group, int block,
                                                     const uint8_t* codes, int first,
                                                     const uint32_t* x, float* c) {
  PairSums<M, V> sums;
  const uint8_t* const eight = codes + first * kVecBytes;
  add_part<0, M, V>(eight, true, x, sums);
  add_part<1, M, V>(eight, false, x, sums);
  add_part<0, M, V>(eight + kChunkBytes, false, x + 4 * M, sums);
  add_part<1, M, V>(eight + kChunkBytes, false, x + 4 * M, sums);
  Vec scales[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) scales[v] = load_scales<Format>(group, block, first + v);
  sums.finish(scales, scales_behind_pairs(x, M), c + first * Simd::kLanes);
}

template <typename Format, int M>
void tile_fp4_rows(const TileArgs& args) {
  constexpr int kShare = Simd::shared_vectors(M);
  clear_unless_accumulating<M, kPanelVecs>(args, 0);
  constexpr StreamFormat kFormat = Format::kStream;
  const uint8_t* group = args.weights;
  const uint32_t* x = args.x;
  for (int block = 0; block < args.k_blocks; block += kFormat.group_blocks) {
    const int blocks = group_size<Format>(args.k_blocks - block);
    const uint8_t* codes = group + kFormat.header_bytes;
    prefetch_lines(group + args.prefetch_bytes, kFormat.header_bytes);
    for (int b = 0; b < blocks; ++b, codes += kFormat.block_bytes, x += kFixedBlockItems * M) {
      prefetch_lines(codes + args.prefetch_bytes, kFormat.block_bytes);
#pragma GCC unroll 1
      for (int v = 0; v < kPanelVecs; v += kShare)
        add_block<Format, M, kShare>(group, b, codes, v, x, args.c);
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

// ---- Staged: per block and group of kTileVecs vectors of rows their scales, then their pairs ----

constexpr int kStagedBlockItems = kFixedBlockItems * kItemStride;

template <int part>
inline __attribute__((always_inline)) void stage_part(const uint8_t* codes, uint32_t* out) {
  Fixed pairs[2];
  Simd::decode_pairs<part>(codes, pairs);
  Simd::store_pairs(out + pair_index(part, 0) * kItemStride, pairs[0]);
  Simd::store_pairs(out + pair_index(part, 1) * kItemStride, pairs[1]);
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
    for (int b = 0; b < blocks; ++b, codes += kFormat.block_bytes, out += kStagedBlockItems) {
      prefetch_lines(codes + args->prefetch_bytes, ahead_bytes(*args, kFormat.block_bytes));
#pragma GCC unroll 1
      for (int v = 0; v < kTileVecs; ++v) {
        const int vec = args->group * kTileVecs + v;
        uint32_t* at = out + v * Simd::kLanes;
        Simd::store(reinterpret_cast<float*>(at), load_scales<Format>(group, b, vec));
#pragma GCC unroll 2
        for (int chunk = 0; chunk < 2; ++chunk) {
          const uint8_t* const eight = codes + chunk * kChunkBytes + vec * kVecBytes;
          uint32_t* const pairs = at + (1 + 4 * chunk) * kItemStride;
          stage_part<0>(eight, pairs);
          stage_part<1>(eight, pairs);
        }
      }
    }
    group = codes;
  }
}

template <int M>
void tile_staged_fp4_rows(const TileArgs& args) {
  constexpr int V = kTileVecs;
  clear_unless_accumulating<M, V>(args, args.group * V);
  const uint32_t* p = reinterpret_cast<const uint32_t*>(args.weights);
  const uint32_t* x = args.x;
  for (int block = 0; block < args.k_blocks; ++block, x += kFixedBlockItems * M) {
    const uint32_t* const pairs = p + kItemStride;
    PairSums<M, V> sums;
#pragma GCC unroll 8
    for (int i = 0; i < kFixedPairs; ++i) {
      Fixed w[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        w[v] = Simd::load_pairs(pairs + i * kItemStride + v * Simd::kLanes);
      sums.add(i == 0, w, x + i * M);
    }
    Vec scales[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      scales[v] = Simd::load(reinterpret_cast<const float*>(p) + v * Simd::kLanes);
    sums.finish(scales, scales_behind_pairs(x, M), args.c + args.group * kItemStride);
    p += kStagedBlockItems;
  }
}

template <int M>
void tile_staged_fp4_tokens(const TileArgs& args) {
  if (args.tokens == M) {
    tile_staged_fp4_rows<M>(args);
  } else if constexpr (M > 1) {
    tile_staged_fp4_tokens<M - 1>(args);
  }
}

void tile_staged_fp4(const TileArgs* args) { tile_staged_fp4_tokens<Simd::kMaxTile>(*args); }

// ---- Ceiling ----

// As `multiply`.
double multiply_integers(int64_t iterations, float* sink) {
  constexpr int kChains = 12;
  const uint32_t seed[1] = {static_cast<uint32_t>(iterations)};
  Fixed w = Simd::broadcast_pair(seed);
  Fixed sum[kChains];
  for (Fixed& chain : sum) chain = w;
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (Fixed& chain : sum) {
      Simd::hide(w);  // Or it would be one product for all.
      chain = Simd::add_pairs(w, w, chain);
    }
  }
  Vec total = Simd::set1(0.f);
  for (const Fixed& chain : sum) total = total + Simd::to_float(chain);
  float values[kLanes];
  Simd::store(values, total);
  for (const float value : values) *sink += value;
  return 2.0 * kChains * kLanes * 2;
}

template <typename Format>
constexpr FormatKernels fp4_kernels() {
  FormatKernels kernels{};
  kernels.arithmetic = Arithmetic::kInt16Pairs;
  kernels.x_block_items = kFixedBlockItems;
  kernels.staged_block_items = kStagedBlockItems;
  kernels.pack_x = pack_fixed;
  kernels.tile = tile_fp4<Format>;
  kernels.stage = stage_fp4<Format>;
  kernels.tile_staged = tile_staged_fp4;
  kernels.multiply = multiply_integers;
  return kernels;
}

}  // namespace
}  // namespace moetune::cpu

// From accumulators to results: scale, bias, activation.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace moetune::kernels {

__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

template <int kEpilogue>
__device__ inline float activate(float gate, float up) {
  if constexpr (kEpilogue == kSwiGlu) return gate * sigmoid(gate) * up;
  if constexpr (kEpilogue == kSwiGluClamped) {
    const float g = fminf(gate, 7.0f), u = fminf(fmaxf(up, -7.0f), 7.0f);
    return g * sigmoid(1.702f * g) * (u + 1.0f);
  }
  if constexpr (kEpilogue == kGatePlusUp) return gate + up;
  return 0.0f;
}
__device__ inline float relu2(float x) {
  const float r = fmaxf(x, 0.0f);
  return r * r;
}

// Factors of one expert's row groups.
template <int kFormat>
struct OutputScale {
  float low = 1.0f, high = 1.0f;
  __device__ OutputScale(const float* scales, int expert) {
    if constexpr (kFormat == kNvfp4 || kFormat == kFp8) {
      low = scales[2 * expert];
      high = scales[2 * expert + 1];
    }
    if constexpr (kFormat == kMxfp4) low = high = kMxfp4Epilogue;
  }
};

// The sums of one row group for kNb * 8 tokens from `first_token` of a tile on, as mma leaves them:
// lane 4g + j has the group's rows g (elements 0, 1) and g + 8 (2, 3) for tokens 2j and 2j + 1 of
// every 8.
template <int kFormat, int kEpilogue, bool kBias, int kNb>
__device__ inline void store_tokens(const GemmParams& p, const Tile& tile,
                                    const OutputScale<kFormat>& scale, int group, int first_token,
                                    const float (&acc)[kNb][4], int lane) {
  if (group >= p.groups) return;
  constexpr bool kGated = is_gated(kEpilogue);
  const int g = lane >> 2, j = lane & 3;
  float bias_low = 0.0f, bias_high = 0.0f;
  if constexpr (kBias) {
    const float* bias = p.bias + (i64(tile.expert) * p.groups + group) * kGroupRows;
    bias_low = bias[kGated ? g : 2 * g];
    bias_high = bias[kGated ? g + 8 : 2 * g + 1];
  }
#pragma unroll
  for (int n = 0; n < kNb; ++n)
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int token = first_token + n * 8 + 2 * j + t;
      if (token >= tile.rows) continue;
      const float low = acc[n][t] * scale.low + bias_low,
                  high = acc[n][t + 2] * scale.high + bias_high;
      const i64 row = i64(tile.first_row + token) * p.output_stride;
      if constexpr (kEpilogue == kIdentity) {
        float* out = static_cast<float*>(p.output) + row + group * kGroupRows + 2 * g;
        *reinterpret_cast<float2*>(out) = make_float2(low, high);
      } else if constexpr (kGated) {
        static_cast<u16*>(p.output)[row + group * 8 + g] = to_bf16(activate<kEpilogue>(low, high));
      } else {
        u16* out = static_cast<u16*>(p.output) + row + group * kGroupRows + 2 * g;
        *reinterpret_cast<u32*>(out) = to_bf16x2(relu2(low), relu2(high));
      }
    }
}

template <int kMt, int kNb>
using Sums = float[kMt][kNb][4];

// Stores the sums of kMt row groups and begins new ones.
template <int kFormat, int kEpilogue, bool kBias, int kMt, int kNb>
__device__ inline void store_set(const GemmParams& p, const Tile& tile,
                                 const OutputScale<kFormat>& scale, int first_group,
                                 int first_token, Sums<kMt, kNb>& acc, int lane) {
#pragma unroll
  for (int m = 0; m < kMt; ++m) {
    store_tokens<kFormat, kEpilogue, kBias>(p, tile, scale, first_group + m, first_token, acc[m],
                                            lane);
#pragma unroll
    for (int n = 0; n < kNb; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[m][n][i] = 0.0f;
  }
}

}  // namespace moetune::kernels

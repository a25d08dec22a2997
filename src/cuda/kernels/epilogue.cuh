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
    if constexpr (kFormat == kNvfp4) {
      low = scales[2 * expert];
      high = scales[2 * expert + 1];
    }
  }
};

}  // namespace moetune::kernels

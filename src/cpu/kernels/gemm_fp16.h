// fp16 through the kernels of 16-bit values, where those multiply f32.
#pragma once

#include "cpu/kernels/gemm_body.h"

namespace moetune::cpu {
namespace {

struct Fp16 {
  static constexpr int kRowBytes = 2;
  static constexpr int kItemBytes = kPanelRows * kRowBytes;

  // All rows of both k, for the first vectors of a panel and those after it.
  template <int V>
  static void prefetch(const uint8_t* p, int first) {
    prefetch_lines(p, first == 0 ? kPairBytes : 0);
  }
  template <int i>
  static Weight item(const uint8_t* p, int vec) {
    return Simd::f16_item(p + i * kItemBytes + vec * Simd::kLanes * kRowBytes);
  }
};

}  // namespace
}  // namespace moetune::cpu

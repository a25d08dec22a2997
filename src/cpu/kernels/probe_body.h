// The loops that say what the machine can do at best.
#pragma once

#include "cpu/kernels/gemm_body.h"
#include "cpu/kernels/row_body.h"

namespace moetune::cpu {
namespace {

constexpr int kReadAheadBytes = 2048;

uint64_t read(const uint8_t* data, size_t bytes) {
  constexpr int kStreams = 256 / kVecBytes < 8 ? 256 / kVecBytes : 8;
  constexpr size_t kStep = kStreams * kVecBytes;
  Words sum[kStreams] = {};
  for (size_t at = 0; at + kStep <= bytes; at += kStep) {
    prefetch_lines(data + at + kReadAheadBytes, kStep);
#pragma GCC unroll 8
    for (int i = 0; i < kStreams; ++i) {
      Words value;
      __builtin_memcpy(&value, data + at + i * kVecBytes, sizeof(value));
      sum[i] ^= value;
    }
  }
  uint64_t result = 0;
  for (const Words& words : sum)
    for (int lane = 0; lane < kLanes; ++lane) result += words[lane];
  return result;
}

double multiply(int64_t iterations, float* sink) {
  constexpr int kChains = 12;
  const uint32_t seed[1] = {static_cast<uint32_t>(iterations & 0x3F803F80)};
  const Weight w = Simd::broadcast(seed);
  Vec sum[kChains];
  for (Vec& chain : sum) chain = Simd::set1(1.f);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (Vec& chain : sum) chain = Simd::multiply_add(w, w, chain);
  }
  Vec total = sum[0];
  for (int i = 1; i < kChains; ++i) total = total + sum[i];
  float values[kLanes];
  Simd::store(values, total);
  for (const float value : values) *sink += value;
  return 2.0 * kChains * kLanes * Simd::kValuesPerItem;
}

}  // namespace
}  // namespace moetune::cpu

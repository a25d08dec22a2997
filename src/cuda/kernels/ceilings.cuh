// What the ceilings are measured with: reading memory and doing nothing else, and random data to
// multiply.
#pragma once

#include <cstdint>

namespace moetune::kernels {

/// Reads `count` 16-byte words once, `unroll` independent loads of a thread in flight. `sink` is
/// written with a chance of 2^-32: it only keeps the loads from being removed.
template <int unroll>
__global__ void read_once(const uint4* __restrict__ words, uint64_t count, uint32_t* sink) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  uint32_t mixed = 0;
  for (; at + (unroll - 1) * step < count; at += unroll * step) {
    uint4 word[unroll];
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word[i].x), "=r"(word[i].y), "=r"(word[i].z), "=r"(word[i].w)
                   : "l"(words + at + i * step));
    }
#pragma unroll
    for (int i = 0; i < unroll; ++i) mixed ^= word[i].x ^ word[i].y ^ word[i].z ^ word[i].w;
  }
  for (; at < count; at += step) mixed ^= words[at].x ^ words[at].y ^ words[at].z ^ words[at].w;
  if (mixed == 0x9e3779b9u) *sink = mixed;
}

/// Fills memory with bf16 numbers that look normal (mean 0, deviation 1): zeros would let the
/// device run faster than any real data.
__global__ void fill_normal_bf16(uint16_t* out, uint64_t count, uint32_t seed) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < count;
       at += step) {
    uint64_t bits = (at + 1) * 0x9e3779b97f4a7c15u + seed;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    // The sum of four uniform numbers is close to normal; its deviation is 65536 / sqrt(3).
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int>(bits >> (16 * i) & 0xffff);
    const float value = (static_cast<float>(sum) - 2 * 65535.0f) * (1.7320508f / 65536);
    out[at] = static_cast<uint16_t>((__float_as_uint(value) + 0x8000u) >> 16);
  }
}

}  // namespace moetune::kernels

// The instructions that CUDA C++ has no words for.
#pragma once

#include "cuda/kernels/params.h"

namespace moetune::kernels {

// Programmatic dependent launch, a no-op for kernels launched without it. Everything that another
// kernel of the same call wrote is read after wait_for_previous().
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Loads are volatile so that the compiler keeps them where they stand: that is what keeps many in
// flight. A false predicate leaves the registers as they are.
template <bool kKeepInL1>
__device__ inline void load_weights(u32* r, const u8* p, bool live) {
  if constexpr (kKeepInL1)
    asm volatile(
        "{ .reg .pred q; setp.ne.b32 q, %5, 0;\n"
        "@q ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
        : "l"(p), "r"(int(live)));
  else
    asm volatile(
        "{ .reg .pred q; setp.ne.b32 q, %5, 0;\n"
        "@q ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
        : "l"(p), "r"(int(live)));
}
__device__ inline void load_weight_scales(u32& r, const u8* p, bool live) {
  asm volatile(
      "{ .reg .pred q; .reg .u16 h; setp.ne.b32 q, %2, 0;\n"
      "mov.b16 h, 0;\n"
      "@q ld.global.nc.L1::no_allocate.u16 h, [%1];\n"
      "cvt.u32.u16 %0, h; }"
      : "=r"(r)
      : "l"(p), "r"(int(live)));
}
__device__ inline void load_block_scales(float (&r)[2], const u8* p, bool live) {
  asm volatile(
      "{ .reg .pred q; setp.ne.b32 q, %3, 0;\n"
      "@q ld.global.nc.v2.f32 {%0, %1}, [%2]; }"
      : "+f"(r[0]), "+f"(r[1])
      : "l"(p), "r"(int(live)));
}
__device__ inline void load_activations(u32* r, const u16* p, bool live) {
  asm volatile(
      "{ .reg .pred q; setp.ne.b32 q, %5, 0;\n"
      "@q ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
      : "l"(p), "r"(int(live)));
}

__device__ inline u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
__device__ inline void load_shared(u32* r, u32 address) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
// 16 bytes to shared memory; zeros where not live.
__device__ inline void copy_async(u32 shared, const void* global, bool live) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(live ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// c += a * b over 16 x 8 x 16.
__device__ inline void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two bf16 products; subnormal factors count.
__device__ inline u32 multiply_bf16x2(u32 a, u32 b) {
  u32 d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
  return d;
}
__device__ inline u32 to_bf16x2(float low, float high) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
// The values of two f16.
__device__ inline float2 from_f16x2(u32 x) {
  float2 f;
  asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(f.x), "=f"(f.y)
      : "r"(x));
  return f;
}
__device__ inline float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_bf16(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }
__device__ inline u16 to_bf16(float x) { return u16(to_bf16x2(x, 0.0f)); }
__device__ inline float from_bf16(u16 x) { return __uint_as_float(u32(x) << 16); }

}  // namespace moetune::kernels

#include "cpu/kernels/simd_avx512_bf16.h"

#include "cpu/kernels/gemm_fp4_float.h"

#include "cpu/kernels/make_table.h"

namespace moetune::cpu {

constinit const KernelTable kAvx512Bf16Kernels = make_table("avx512_bf16", &kAvx512Fp16Kernels);

}  // namespace moetune::cpu

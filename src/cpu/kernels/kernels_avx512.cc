#include "cpu/kernels/simd_avx512.h"

#include "cpu/kernels/gemm_fp16.h"
#include "cpu/kernels/gemm_fp4_int16.h"

#include "cpu/kernels/make_table.h"

namespace moetune::cpu {

constinit const FormatKernels kAvx512Fp16Kernels = halves_kernels<Fp16>();

constinit const KernelTable kAvx512Kernels = make_table("avx512", &kAvx512Fp16Kernels);

}  // namespace moetune::cpu

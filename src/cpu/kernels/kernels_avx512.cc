#include "cpu/kernels/simd_avx512.h"

#include "cpu/kernels/gemm_nvfp4_int16.h"

#include "cpu/kernels/make_table.h"

namespace moetune::cpu {

constinit const KernelTable kAvx512Kernels = make_table("avx512");

}  // namespace moetune::cpu

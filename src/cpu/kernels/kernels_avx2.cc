#include "cpu/kernels/simd_avx2.h"

#include "cpu/kernels/gemm_nvfp4_int16.h"

#include "cpu/kernels/make_table.h"

namespace moetune::cpu {

constinit const KernelTable kAvx2Kernels = make_table("avx2");

}  // namespace moetune::cpu

#include "cpu/kernels/simd_avx512_bf16.h"

#include "cpu/kernels/gemm_body.h"
#include "cpu/kernels/row_body.h"

#include "cpu/kernels/probe_body.h"

namespace moetune::cpu {

constinit const KernelTable kAvx512Bf16Kernels = make_table("avx512_bf16");

}  // namespace moetune::cpu

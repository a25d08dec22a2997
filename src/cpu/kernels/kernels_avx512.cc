#include "cpu/kernels/simd_avx512.h"

#include "cpu/kernels/gemm_body.h"
#include "cpu/kernels/row_body.h"

#include "cpu/kernels/probe_body.h"

namespace moetune::cpu {

constinit const KernelTable kAvx512Kernels = make_table("avx512");

}  // namespace moetune::cpu

#include "cpu/kernels/simd_avx2.h"

#include "cpu/kernels/gemm_body.h"
#include "cpu/kernels/row_body.h"

#include "cpu/kernels/probe_body.h"

namespace moetune::cpu {

constinit const KernelTable kAvx2Kernels = make_table("avx2");

}  // namespace moetune::cpu

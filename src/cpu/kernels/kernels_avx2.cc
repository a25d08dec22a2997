#include "cpu/kernels/simd_avx2.h"

#include "cpu/kernels/gemm_fp16.h"
#include "cpu/kernels/gemm_fp4_int16.h"

#include "cpu/kernels/make_table.h"

namespace moetune::cpu {

namespace {
constexpr FormatKernels kFp16Kernels = halves_kernels<Fp16>();
}  // namespace

constinit const KernelTable kAvx2Kernels = make_table("avx2", &kFp16Kernels);

}  // namespace moetune::cpu

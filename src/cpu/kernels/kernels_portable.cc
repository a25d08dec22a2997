#include "cpu/kernels/simd_portable.h"

#include "cpu/kernels/gemm_fp16.h"
#include "cpu/kernels/gemm_fp4_float.h"

#include "cpu/kernels/make_table.h"

namespace moetune::cpu {

namespace {
constexpr FormatKernels kFp16Kernels = halves_kernels<Fp16>();
}  // namespace

constinit const KernelTable kPortableKernels = make_table("portable", &kFp16Kernels);

}  // namespace moetune::cpu

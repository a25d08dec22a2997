#include "cpu/kernels/simd_portable.h"

#include "cpu/kernels/gemm_nvfp4_float.h"

#include "cpu/kernels/make_table.h"

namespace moetune::cpu {

constinit const KernelTable kPortableKernels = make_table("portable");

}  // namespace moetune::cpu

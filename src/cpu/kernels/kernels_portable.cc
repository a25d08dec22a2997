#include "cpu/kernels/simd_portable.h"

#include "cpu/kernels/gemm_body.h"
#include "cpu/kernels/row_body.h"

#include "cpu/kernels/probe_body.h"

namespace moetune::cpu {

constinit const KernelTable kPortableKernels = make_table("portable");

}  // namespace moetune::cpu

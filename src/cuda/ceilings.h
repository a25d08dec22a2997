// What a device can do at best, measured in the same run as what is compared with it.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/device.h"
#include "cuda/jit.h"
#include "moetune/result.h"

namespace moetune::cuda {

struct ReadCeiling {
  size_t bytes = 0;  ///< Read per launch.
  double us = 0;     ///< Of one launch.
  double bytes_per_second = 0;
  std::string shape;  ///< The launch that was best: "2 blocks of 512 threads per multiprocessor, 4
                      ///< loads each".
};

/// Read bandwidth of device memory at `bytes` per launch: the best of several launch shapes, cold
/// (launches rotate through more than three times the L2), by graph replay. kOutOfMemory where
/// twice `bytes` do not fit. Takes about a second.
Result<ReadCeiling> measure_read_ceiling(CudaDevice& device, Jit& jit, size_t bytes);

struct MatrixCeiling {
  double us = 0;  ///< Of one product.
  double flops_per_second = 0;
  std::string library;  ///< "cuBLASLt 13.0.2"
};

/// The best bf16 matrix rate through cuBLASLt: size x size x size with f32 accumulation on random
/// data, the best of the algorithms that its heuristic proposes. kUnsupported where there is no
/// cuBLASLt.
Result<MatrixCeiling> measure_matrix_ceiling(CudaDevice& device, Jit& jit, int size = 8192);

}  // namespace moetune::cuda

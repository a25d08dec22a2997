// What a device can do at best: the measure that reports hold times against.
#pragma once

#include <cstddef>
#include <string>

namespace moetune {

/// What the machine can do, measured just now. `ceiling_fraction` in reports is against these.
struct Ceilings {
  double read_bytes_per_s = 0;  ///< Reading `read_bytes` once, from memory.
  size_t read_bytes = 0;
  double operations_per_s =
      0;  ///< Best matrix (GPU) or dot-product (CPU) rate for bf16 weights and activations.
  std::string read_name;        ///< How it was measured: "read of 256 MiB, 2 threads, avx2"
  std::string operations_name;  ///< "f32 FMA loop, 2 threads, avx2", "cuBLASLt bf16 8192^3"
};

}  // namespace moetune

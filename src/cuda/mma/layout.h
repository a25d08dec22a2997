// How a specification's matrices are packed: src/cuda/kernels/params.h for one of them.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/kernels/params.h"
#include "moetune/moe_spec.h"

namespace moetune::cuda {

/// One expert's matrix [rows, k], packed into groups of 16 rows and units of 64 values.
struct MatrixLayout {
  int rows = 0;
  int k = 0;
  bool gated = false;  ///< Rows are gate then up; a group has 8 of each.
  int groups = 0;
  int units = 0;  ///< Of one group.
  int64_t expert_bytes = 0;
};

struct WeightLayout {
  kernels::Format format = kernels::kBf16;
  MatrixLayout w13;
  MatrixLayout w2;
  int activation_columns =
      0;  ///< Columns that GEMM 1 writes: `intermediate`, and zeros to fill its last group.

  int epilogue = kernels::kSwiGlu;
  bool bias = false;
};

WeightLayout weight_layout(const FusedMoeSpec& spec);

/// Why this family cannot run a specification; empty where it can.
std::string why_unsupported(const FusedMoeSpec& spec);

}  // namespace moetune::cuda

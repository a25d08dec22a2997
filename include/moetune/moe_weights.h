// Weights that a program has in memory already, handed over without a copy where they lie as
// moetune wants them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune {

/// A matrix in host memory, at any address and with any distances. An element is one value (or
/// scale), or the byte of two 4-bit codes. Not owned.
struct MatrixPointer {
  const void* data = nullptr;
  int64_t row_stride = 0;     ///< Bytes from a row to the next. 0: rows follow each other.
  int64_t column_stride = 0;  ///< Bytes from an element to the next. 0: they follow each other.
};

/// One expert's share of one rank (H = hidden, I = intermediate of the specification), in the
/// specification's format. A slice of a larger matrix is its first element and its strides. What
/// the format does not have is not looked at. Without a gate (relu²), neither are gate's parts.
struct ExpertPointers {
  MatrixPointer gate;         ///< [I, H], in bytes of two codes [I, H / 2].
  MatrixPointer up;           ///< The same.
  MatrixPointer down;         ///< [H, I], in bytes of two codes [H, I / 2].
  MatrixPointer gate_scales;  ///< nvfp4, mxfp4: a row for each row; fp8-block: for each 128 rows.
  MatrixPointer up_scales;
  MatrixPointer down_scales;
  float gate_global = 1;  ///< nvfp4, fp8: multiplies (ModelOpt's `weight_scale_2`).
  float up_global = 1;
  float down_global = 1;
  const float* gate_bias = nullptr;  ///< [I], with `bias` only.
  const float* up_bias = nullptr;    ///< [I]
  const float* down_bias = nullptr;  ///< [H]; null: zeros, as on all TP ranks but one.
};

/// Where an expert's weights are, by its number on this rank (shared experts after the others).
/// What it points to must stay as it is until the next call. Called from the thread that asks for a
/// chunk, for an expert as often as it is asked for.
using ExpertPointersOf = std::function<Result<ExpertPointers>(int64_t expert)>;

/// A source of the chunks that moe_spec.h describes. A tensor whose parts follow each other in
/// memory, aligned for its type, is passed on as it is; others are put together in memory of the
/// source's own, which holds one expert. The source keeps `pointers_of`.
///
/// kInvalidArgument for a specification that is not valid. Of a chunk: errors of `pointers_of`;
/// kInvalidArgument, naming expert and part, where something that is needed is null, or a scale or
/// bias is NaN or infinite, or a scale negative. Thread-compatible.
Result<std::unique_ptr<WeightSource>> weights_from_pointers(const FusedMoeSpec& spec,
                                                            ExpertPointersOf pointers_of);

}  // namespace moetune

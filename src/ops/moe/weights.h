// Weights of fused_moe, one expert at a time: a typed view of a chunk of any WeightSource, and
// sources of random weights.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"
#include "moetune/tensor.h"

namespace moetune {

/// One expert's weights as moe_spec.h lays them out. Pointers are into the chunk it was made from;
/// what the format does not have is null, or 1.
struct ExpertWeights {
  const void* w13 = nullptr;         ///< [w13_rows, hidden]
  const void* w2 = nullptr;          ///< [hidden, intermediate]
  const void* w13_scales = nullptr;  ///< Types and shapes: format.h.
  const void* w2_scales = nullptr;
  float gate_global = 1;
  float up_global = 1;  ///< Of all rows where w13 has no gate.
  float down_global = 1;
  const float* w13_bias = nullptr;  ///< [w13_rows], with spec.bias only.
  const float* w2_bias = nullptr;   ///< [hidden], with spec.bias only.
};

/// kInvalidArgument, naming the tensor, where one is missing or has another type or shape than the
/// specification says.
Result<ExpertWeights> view_expert(const FusedMoeSpec& spec, const Tensors& chunk);

/// What random weights and inputs are for.
enum class DataKind : uint8_t {
  /// Normal values (quantised formats: codes and scales like those of quantised normal weights, now
  /// and then a tiny or zero scale), sized so that activations and outputs are of the order of 1.
  kRealistic,
  /// Small integers, sparse, under power-of-two scales: with an exact_variant() of the
  /// specification, every product and partial sum of both
  /// GEMMs and of the combination is exact in f32, in any order, so that all right kernels give the
  /// same bits. The e4m3 numbers, block scales of nvfp4 or weights of fp8, reach from the smallest
  /// subnormal to 384, undone by the global scale or that of their block; the scales of mxfp4 from
  /// 2^-21 to 2^21, undone by those of w2.
  kExact,
};

/// The same problem with what is not exact left out: gate + up in place of a gated activation
/// (relu² is exact), activations as bf16, and given routing (whose weights make_inputs() takes from
/// {1/2, 1}).
FusedMoeSpec exact_variant(FusedMoeSpec spec);

/// Random weights that follow from the arguments alone, on every machine; an expert's do not depend
/// on which others were made, nor on `threads` (>= 1), which make one. Made when asked for, so that
/// memory holds one expert. Thread-compatible: equal arguments give equal weights.
/// kInvalidArgument for a specification that is not valid.
Result<std::unique_ptr<WeightSource>> make_random_weights(const FusedMoeSpec& spec, DataKind kind,
                                                          uint64_t seed, int threads = 1);

}  // namespace moetune

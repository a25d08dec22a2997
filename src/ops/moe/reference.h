// What fused_moe is by definition: plain loops over single rows, sums in f64, nothing shared with
// any runner (not even the router). Slow on purpose where clarity asks for it; it visits each
// expert that the asked-for rows need once, and holds one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"
#include "moetune/tensor.h"

namespace moetune {

/// Some rows of the right output, before it is rounded to the output type.
struct ReferenceRows {
  std::vector<int64_t> tokens;  ///< Which.
  int64_t hidden = 0;
  std::vector<float> values;  ///< [tokens.size(), hidden]
};

/// Where values between the GEMMs are rounded to bf16. The definition rounds h alone; kernels of
/// serving engines write what comes out of the first GEMM to memory and read it again. With
/// activations of few bits that shows: a value of h that lies a hair apart may round to another
/// code.
enum class Rounding : uint8_t {
  kDefinition,       ///< h
  kGateUp,           ///< gate and up, then h
  kGateUpActivated,  ///< gate and up, then silu(gate), then h
};

/// The output rows of `tokens` (any order, repeats allowed) for the inputs among `arguments`, which
/// are in host memory. x and h are rounded to the activation format, and to bf16 what `rounding`
/// says; nothing else is rounded before the result. The same bits for any number of threads
/// (>= 1). kInvalidArgument where arguments or weights do not fit the specification; errors of
/// `weights`.
Result<ReferenceRows> reference_rows(const FusedMoeSpec& spec, WeightSource& weights,
                                     const Tensors& arguments, std::span<const int64_t> tokens,
                                     int threads = 1, Rounding rounding = Rounding::kDefinition);

/// The same under several roundings at once, in their order: hardly more work than under one.
Result<std::vector<ReferenceRows>> reference_rows(const FusedMoeSpec& spec, WeightSource& weights,
                                                  const Tensors& arguments,
                                                  std::span<const int64_t> tokens, int threads,
                                                  std::span<const Rounding> roundings);

/// The output row of one token: [hidden].
Result<std::vector<float>> reference_row(const FusedMoeSpec& spec, WeightSource& weights,
                                         const Tensors& arguments, int64_t token);

/// Where a token goes by the definition in router.h: one entry per top-k slot, in order.
struct ReferenceSlot {
  int64_t expert = -1;
  double weight = 0;
};
std::vector<ReferenceSlot> reference_route(const FusedMoeSpec& spec, std::span<const float> logits,
                                           std::span<const float> bias);

}  // namespace moetune

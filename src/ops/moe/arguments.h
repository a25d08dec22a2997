// The arguments of one call of fused_moe: a typed view of the tensors that moe_spec.h lists, and
// random ones to measure and verify with.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/tensor.h"
#include "ops/moe/weights.h"
#include "ops/moe/workload.h"

namespace moetune {

/// Pointers into the tensors it was made from; shapes as in moe_spec.h. What the specification does
/// not have is null.
struct MoeArguments {
  int64_t tokens = 0;
  const uint16_t* hidden = nullptr;  ///< bf16
  const float* logits = nullptr;
  const float* router_bias = nullptr;
  const int32_t* topk_ids = nullptr;
  const float* topk_weights = nullptr;
  int64_t first_expert = 0;
  const float* activation_scales = nullptr;  ///< [2]
};

/// kInvalidArgument, naming the tensor, where an input is missing or has another type or shape than
/// the specification says. Inputs must be in host memory. The output is not looked at.
Result<MoeArguments> view_arguments(const FusedMoeSpec& spec, const Tensors& arguments);

/// One call's inputs, and the memory they are in.
struct MoeInputs {
  std::vector<uint16_t> hidden;  ///< [tokens, spec.hidden] bf16
  Routing routing;
  int32_t first_expert = 0;
  std::array<float, 2> activation_scales = {};  ///< Of x and of h.
};

/// Random inputs that follow from the arguments alone, on every machine; scales of activations are
/// constants that hold what such inputs and random weights bring. Hidden states are standard
/// normal (kRealistic), or 1 and -1 (kExact, whose routing weights are 1/2 and 1 and count with
/// given_routing only). Errors are make_routing()'s, and kInvalidArgument for a specification that
/// is not valid, a negative number of tokens, or experts that reach beyond the last global one. The
/// same for any number of threads (>= 1).
Result<MoeInputs> make_inputs(const FusedMoeSpec& spec, const Workload& workload, int64_t tokens,
                              DataKind kind, uint64_t seed, uint64_t sample,
                              int64_t first_expert = 0, int threads = 1);

/// The tensors of a call in the operator's order, the output last. Points into `inputs` and at
/// `output`, which may be null.
Tensors call_arguments(const FusedMoeSpec& spec, MoeInputs& inputs, void* output);

}  // namespace moetune

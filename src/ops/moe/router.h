// From router logits to experts and their weights, in f32, for the hot path of runners on the CPU.
//
// Definition, for one token with logits l (RouterSpec names the switches):
//
// 1. Scores. s = score(l): softmax over all experts, sigmoid, or sqrt(log(1 + e^l)); with
//    score_after_top_k, s = l for now. b = s + bias with selection_bias, else b = s.
//
// 2. Groups, where there are several. A group's score is the sum of its two best b. The top_groups
//    best groups stay; in all others b = -infinity.
//
// 3. Choice. The chosen experts are the top_k largest b, best first. Equal ones, and equal groups,
//    go to the lowest id. NaN counts as -infinity.
//
// 4. Weights. w = s of the chosen, without bias; with score_after_top_k, w = score(l) of the
//    chosen, a softmax being over those only. With renormalise, w is divided by its sum, to which
//    the sigmoid families (sigmoid, sqrt-softplus) add 1e-20. Last, w is multiplied by scale.
//
// Scores rise with their logits, so where nothing is added to them (no bias, one group) experts are
// chosen by the logits themselves: no ties by rounding, and no exponentials for experts that were
// not chosen.
#pragma once

#include <cstdint>

#include "moetune/moe_spec.h"

namespace moetune {

inline constexpr float kRenormaliseEpsilon = 1e-20f;

/// Routes one token: logits [global_experts] to ids and weights [top_k], best first. `bias`
/// [global_experts] is read only with selection_bias. The specification must be valid. Allocates
/// nothing; ids are distinct and in range whatever the logits are.
void route(const FusedMoeSpec& spec, const float* logits, const float* bias, int32_t* ids,
           float* weights);

}  // namespace moetune

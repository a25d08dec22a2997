// The fused MoE layer on the CPU, on raw pointers: group tokens by expert, GEMM 1 with the
// activation, GEMM 2, combine.
//
// Work is cut into tasks of (expert, panels of weight rows, block of its tokens), the experts with
// most tokens first, and each idle thread takes the next one. Which thread runs a task, and when,
// changes no bit of the result: a task owns its outputs, and sums run in an order that the tactic
// fixes. GEMM 2 leaves one f32 row per (token, slot); those of a token are summed in the order of
// its slots.
//
// Large numbers of tokens are worked off in passes of equal size, so that the workspace stays small
// next to the weights. Nothing is allocated in run().
#pragma once

#include <cstdint>

#include "cpu/kernels/kernel_table.h"
#include "cpu/panel_weights.h"
#include "cpu/tactic.h"
#include "cpu/threads.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune::cpu {

struct LayerInputs {
  int64_t tokens = 0;
  const uint16_t* hidden = nullptr;  ///< bf16 [tokens, hidden]
  const int32_t* ids =
      nullptr;  ///< [tokens, slots], 0 .. held_experts-1; -1: skipped; repeated ids add up.
  const float* weights = nullptr;  ///< [tokens, slots]
  float x_scale = 0, h_scale = 0;  ///< Of activations, where they are given.
  void* output = nullptr;          ///< bf16 or f32, as the specification says, [tokens, hidden]
};

/// Bytes that run() needs for up to `tokens` tokens.
int64_t workspace_bytes(const FusedMoeSpec& spec, int64_t tokens, const LayerTactic& tactic,
                        const KernelTable& kernels, int threads);

/// What of the layer is run.
enum class Part : uint8_t {
  kAll,
  kGemm1,  ///< GEMM 1 and the activation, and rounding before and after them.
  kGemm2,  ///< GEMM 2, on what a complete run of the same inputs left in the workspace; for timing.
};

/// Computes the layer. `workspace`: 64-byte aligned, of workspace_bytes() for these arguments; its
/// content neither matters nor means anything afterwards. Fails, with kInvalidArgument, on an id
/// that is no expert's, before it writes any output. The tactic must be valid for the kernels
/// (validate).
Status run_layer(const PanelWeights& weights, const LayerInputs& inputs, const LayerTactic& tactic,
                 const KernelTable& kernels, ThreadPool& pool, uint8_t* workspace,
                 Part part = Part::kAll);

}  // namespace moetune::cpu

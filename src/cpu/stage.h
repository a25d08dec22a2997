// One GEMM stage of the layer: how a thread works off its tasks.
#pragma once

#include <cstdint>

#include "cpu/grouping.h"
#include "cpu/kernels/kernel_table.h"
#include "cpu/panel_weights.h"
#include "cpu/tactic.h"
#include "cpu/threads.h"

namespace moetune::cpu {

/// One thread's own memory.
struct StageScratch {
  uint32_t* x = nullptr;       ///< Packed activations of a task, for the k worked on.
  float* x_scales = nullptr;   ///< Theirs, where activations are rounded.
  float* c = nullptr;          ///< Sums: of a panel, or where k is cut, of all panels of a task.
  uint32_t* staged = nullptr;  ///< One panel's converted weights, for the k worked on.
};

/// What a stage needs of each, in elements.
struct ScratchSizes {
  int64_t x_items = 0;
  int64_t x_scales = 0;
  int64_t c_values = 0;
  int64_t staged_items = 0;
};

ScratchSizes scratch_sizes(const StageTactic& tactic, int64_t k_blocks,
                           const FormatKernels& kernels, ActivationFormat activations);
ScratchSizes max_sizes(const ScratchSizes& a, const ScratchSizes& b);

/// h[row] = activation(hidden[row_token[row]] · w13ᵀ). Where activations are rounded, their codes
/// are in place of values and their scales, one for 128 values, beside them; else null.
struct Gemm1 {
  const PanelWeights& weights;
  const KernelTable& kernels;
  const StageTactic& tactic;
  const Grouping& grouping;
  const uint16_t* hidden;
  const float* hidden_scales;
  uint16_t* h;
  int64_t h_stride;
};

/// y[row_slot[row]] = h[row] · w2ᵀ
struct Gemm2 {
  const PanelWeights& weights;
  const KernelTable& kernels;
  const StageTactic& tactic;
  const Grouping& grouping;
  const uint16_t* h;
  const float* h_scales;
  int64_t h_stride;
  float* y;
  int64_t y_stride;
};

/// Takes tasks of the stage until none is left.
void run_tasks(const Gemm1& gemm, TaskCounter& counter, const StageScratch& scratch);
void run_tasks(const Gemm2& gemm, TaskCounter& counter, const StageScratch& scratch);

}  // namespace moetune::cpu

#include "cpu/layer.h"

#include <algorithm>

#include "base/integers.h"
#include "base/status_macros.h"
#include "cpu/grouping.h"
#include "cpu/stage.h"
#include "ops/moe/format.h"

namespace moetune::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kColumnsPerTask = 512;

int64_t aligned(int64_t bytes) { return ceil_div(bytes, kAlignment) * kAlignment; }

// One f32 row of GEMM 2.
int64_t y_stride(const FusedMoeSpec& spec) {
  return ceil_div(spec.hidden, kPanelRows) * kPanelRows;
}
// One bf16 row of GEMM 1: whole panels are written.
int64_t h_stride(const FusedMoeSpec& spec) {
  return ceil_div(spec.intermediate, kPanelRows) * kPanelRows;
}

// Tokens of one pass at most. What grows with them is mostly GEMM 2's rows: those stay under a
// tenth of the weights, or 32 MiB where that is more.
int64_t pass_limit(const FusedMoeSpec& spec) {
  const int64_t token_bytes = spec.slots() * (4 * y_stride(spec) + 2 * h_stride(spec));
  const int64_t allowed = std::max<int64_t>(int64_t{32} << 20, PanelWeights::bytes(spec) / 10);
  return std::max<int64_t>(16, allowed / token_bytes);
}

int64_t pass_tokens(const FusedMoeSpec& spec, int64_t tokens) {
  if (tokens == 0) return 0;
  return ceil_div(tokens, ceil_div(tokens, pass_limit(spec)));
}

// Hands out pieces of the workspace; with a null base it only adds up.
class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}

  template <typename T>
  T* take(int64_t count) {
    const int64_t at = used_;
    used_ += aligned(count * static_cast<int64_t>(sizeof(T)));
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  int64_t used() const { return used_; }

 private:
  uint8_t* base_;
  int64_t used_ = 0;
};

struct Workspace {
  Grouping grouping;
  // Where activations are rounded: codes of hidden states, their scales and those of h.
  uint16_t* x = nullptr;
  float* x_scales = nullptr;
  float* h_scales = nullptr;
  uint16_t* h = nullptr;
  float* y = nullptr;
  StageScratch scratch;  // Of thread 0; thread i's is i · scratch_bytes further.
  int64_t scratch_bytes = 0;
};

StageScratch carve_scratch(Carver& carver, const FusedMoeSpec& spec, const LayerTactic& tactic,
                           const KernelTable& kernels) {
  const FormatKernels& format = format_kernels(kernels, spec.weights);
  const ScratchSizes sizes = max_sizes(
      scratch_sizes(tactic.gemm1, ceil_div(spec.hidden, kBlock), format, spec.activations),
      scratch_sizes(tactic.gemm2, ceil_div(spec.intermediate, kBlock), format, spec.activations));
  StageScratch scratch;
  scratch.x = carver.take<uint32_t>(sizes.x_items);
  scratch.x_scales = carver.take<float>(sizes.x_scales);
  scratch.c = carver.take<float>(sizes.c_values);
  scratch.staged = carver.take<uint32_t>(sizes.staged_items);
  return scratch;
}

Workspace carve(Carver& carver, const FusedMoeSpec& spec, int64_t tokens, const LayerTactic& tactic,
                const KernelTable& kernels) {
  Workspace workspace;
  const int64_t rows = tokens * spec.slots();
  workspace.grouping.experts = carver.take<ExpertRows>(spec.held_experts() + 1);
  workspace.grouping.counts = carver.take<int32_t>(spec.held_experts());
  workspace.grouping.row_token = carver.take<int32_t>(rows);
  workspace.grouping.row_slot = carver.take<int32_t>(rows);
  if (rounds_activations(spec)) {
    workspace.x = carver.take<uint16_t>(tokens * spec.hidden);
    workspace.x_scales = carver.take<float>(tokens * activation_scale_count(spec.hidden));
    workspace.h_scales = carver.take<float>(rows * activation_scale_count(spec.intermediate));
  }
  workspace.h = carver.take<uint16_t>(rows * h_stride(spec));
  workspace.y = carver.take<float>(rows * y_stride(spec));
  const int64_t before = carver.used();
  workspace.scratch = carve_scratch(carver, spec, tactic, kernels);
  workspace.scratch_bytes = carver.used() - before;
  return workspace;
}

StageScratch scratch_of(const Workspace& workspace, int thread) {
  const int64_t bytes = workspace.scratch_bytes * thread;
  StageScratch scratch = workspace.scratch;
  scratch.x += bytes / static_cast<int64_t>(sizeof(*scratch.x));
  scratch.x_scales += bytes / static_cast<int64_t>(sizeof(*scratch.x_scales));
  scratch.c += bytes / static_cast<int64_t>(sizeof(*scratch.c));
  scratch.staged += bytes / static_cast<int64_t>(sizeof(*scratch.staged));
  return scratch;
}

// Sums the rows of one token over its slots, for columns [first, last).
void combine(const FusedMoeSpec& spec, const LayerInputs& inputs, const KernelTable& kernels,
             const float* y, int64_t token, int64_t first, int64_t last) {
  const int64_t slot = token * spec.slots();
  const CombineArgs args{y + slot * y_stride(spec) + first,
                         y_stride(spec),
                         inputs.ids + slot,
                         inputs.weights + slot,
                         spec.slots(),
                         last - first};
  const int64_t at = token * spec.hidden + first;
  if (spec.output == DataType::kF32) {
    kernels.combine_f32(&args, static_cast<float*>(inputs.output) + at);
  } else {
    kernels.combine_bf16(&args, static_cast<uint16_t*>(inputs.output) + at);
  }
}

void combine_all(const FusedMoeSpec& spec, const LayerInputs& inputs, const KernelTable& kernels,
                 const float* y, TaskCounter& counter) {
  const int64_t pieces = ceil_div(spec.hidden, kColumnsPerTask);
  for (int64_t i = counter.next(); i < inputs.tokens * pieces; i = counter.next()) {
    const int64_t first = i % pieces * kColumnsPerTask;
    combine(spec, inputs, kernels, y, i / pieces, first,
            std::min(spec.hidden, first + kColumnsPerTask));
  }
}

// Rows are `stride` values apart in both; `given`: as in kernel_table.h.
void round_rows(const KernelTable& kernels, const uint16_t* in, uint16_t* codes, float* scales,
                float given, int64_t stride, int64_t columns, int64_t rows, TaskCounter& counter) {
  for (int64_t row = counter.next(); row < rows; row = counter.next())
    kernels.round_row(in + row * stride, codes + row * stride,
                      scales + row * activation_scale_count(columns), given, columns);
}

void run_pass(const PanelWeights& weights, const LayerInputs& inputs, const LayerTactic& tactic,
              const KernelTable& kernels, ThreadPool& pool, Workspace& workspace, Part part) {
  const FusedMoeSpec& spec = weights.spec();
  Grouping& grouping = workspace.grouping;
  group_by_expert(inputs.ids, inputs.tokens, spec.slots(), spec.held_experts(), grouping);
  number_tasks(grouping, 0, tactic.gemm1, weights.w13().panels);
  number_tasks(grouping, 1, tactic.gemm2, weights.w2().panels);

  const bool rounds = rounds_activations(spec);
  int64_t rows = 0;
  for (int32_t i = 0; i < grouping.touched; ++i) rows += grouping.experts[i].rows;
  const Gemm1 gemm1{weights,
                    kernels,
                    tactic.gemm1,
                    grouping,
                    rounds ? workspace.x : inputs.hidden,
                    workspace.x_scales,
                    workspace.h,
                    h_stride(spec)};
  const Gemm2 gemm2{weights,        kernels,     tactic.gemm2,
                    grouping,       workspace.h, workspace.h_scales,
                    h_stride(spec), workspace.y, y_stride(spec)};
  TaskCounter counters[5];
  Barrier barrier(pool.size());
  pool.run([&](int thread) {
    const StageScratch scratch = scratch_of(workspace, thread);
    if (part != Part::kGemm2) {
      if (rounds) {
        round_rows(kernels, inputs.hidden, workspace.x, workspace.x_scales, inputs.x_scale,
                   spec.hidden, spec.hidden, inputs.tokens, counters[3]);
        barrier.arrive_and_wait();
      }
      run_tasks(gemm1, counters[0], scratch);
      if (rounds) {
        barrier.arrive_and_wait();
        round_rows(kernels, workspace.h, workspace.h, workspace.h_scales, inputs.h_scale,
                   h_stride(spec), spec.intermediate, rows, counters[4]);
      }
    }
    if (part == Part::kAll) barrier.arrive_and_wait();
    if (part != Part::kGemm1) run_tasks(gemm2, counters[1], scratch);
    if (part != Part::kAll) return;
    barrier.arrive_and_wait();
    combine_all(spec, inputs, kernels, workspace.y, counters[2]);
  });
}

}  // namespace

int64_t workspace_bytes(const FusedMoeSpec& spec, int64_t tokens, const LayerTactic& tactic,
                        const KernelTable& kernels, int threads) {
  // Of the largest pass of any call up to that size: fewer tokens may be a larger pass than one
  // half of more tokens.
  Carver carver(nullptr);
  const Workspace workspace =
      carve(carver, spec, std::min(tokens, pass_limit(spec)), tactic, kernels);
  return carver.used() + workspace.scratch_bytes * (threads - 1);
}

Status run_layer(const PanelWeights& weights, const LayerInputs& inputs, const LayerTactic& tactic,
                 const KernelTable& kernels, ThreadPool& pool, uint8_t* workspace, Part part) {
  const FusedMoeSpec& spec = weights.spec();
  MOETUNE_RETURN_IF_ERROR(check_ids(inputs.ids, inputs.tokens * spec.slots(), spec.held_experts()));
  const int64_t pass = pass_tokens(spec, inputs.tokens);
  Carver carver(workspace);
  Workspace carved = carve(carver, spec, pass, tactic, kernels);
  const int64_t output_bytes = spec.hidden * (spec.output == DataType::kF32 ? 4 : 2);
  for (int64_t first = 0; first < inputs.tokens; first += pass) {
    LayerInputs some = inputs;
    some.tokens = std::min(pass, inputs.tokens - first);
    some.hidden += first * spec.hidden;
    some.ids += first * spec.slots();
    some.weights += first * spec.slots();
    some.output = static_cast<uint8_t*>(inputs.output) + first * output_bytes;
    run_pass(weights, some, tactic, kernels, pool, carved, part);
  }
  return {};
}

}  // namespace moetune::cpu

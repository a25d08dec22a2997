#include "cpu/stage.h"

#include <algorithm>

#include "base/integers.h"
#include "ops/moe/format.h"

namespace moetune::cpu {
namespace {

int64_t step_blocks(const StageTactic& tactic, int64_t k_blocks) {
  return tactic.k_block == 0 ? k_blocks : std::min<int64_t>(k_blocks, tactic.k_block / kBlock);
}

// ---- Where the stages differ ----

constexpr int stage_index(const Gemm1&) { return 0; }
constexpr int stage_index(const Gemm2&) { return 1; }

const PanelGrid& grid(const Gemm1& gemm) { return gemm.weights.w13(); }
const PanelGrid& grid(const Gemm2& gemm) { return gemm.weights.w2(); }

const uint8_t* panel(const Gemm1& gemm, int64_t expert, int64_t index) {
  return gemm.weights.w13(expert) + index * grid(gemm).panel_bytes;
}
const uint8_t* panel(const Gemm2& gemm, int64_t expert, int64_t index) {
  return gemm.weights.w2(expert) + index * grid(gemm).panel_bytes;
}

int64_t depth(const Gemm1& gemm) { return gemm.weights.spec().hidden; }
int64_t depth(const Gemm2& gemm) { return gemm.weights.spec().intermediate; }

const uint16_t* input_row(const Gemm1& gemm, int32_t row) {
  return gemm.hidden + gemm.grouping.row_token[row] * depth(gemm);
}
const uint16_t* input_row(const Gemm2& gemm, int32_t row) { return gemm.h + row * gemm.h_stride; }

constexpr int64_t kRoundBlocks = kActivationBlock / kBlock;  // That share a scale of activations.

const float* input_scales(const Gemm1& gemm, int32_t row) {
  if (gemm.hidden_scales == nullptr) return nullptr;
  return gemm.hidden_scales + gemm.grouping.row_token[row] * activation_scale_count(depth(gemm));
}
const float* input_scales(const Gemm2& gemm, int32_t row) {
  return gemm.h_scales == nullptr ? nullptr
                                  : gemm.h_scales + row * activation_scale_count(depth(gemm));
}

template <typename Gemm>
const FormatKernels& kernels_of(const Gemm& gemm) {
  return format_kernels(gemm.kernels, gemm.weights.spec().weights);
}

Epilogue epilogue(Activation activation) {
  switch (activation) {
    case Activation::kSwiGlu: return Epilogue::kSwiGlu;
    case Activation::kSwiGluClamped: return Epilogue::kSwiGluClamped;
    case Activation::kRelu2: return Epilogue::kRelu2;
    case Activation::kGatePlusUp: return Epilogue::kGatePlusUp;
  }
  return Epilogue::kSwiGlu;
}

const float* panel_bias(const float* bias, int64_t index) {
  return bias == nullptr ? nullptr : bias + index * kPanelRows;
}

void finish(const Gemm1& gemm, const Task& task, int64_t index, const float* c) {
  const Multipliers& multipliers = gemm.weights.multipliers(task.expert->expert);
  const Epilogue kind = epilogue(gemm.weights.spec().activation);
  const bool gated = gemm.weights.spec().gated();
  uint16_t* out =
      gemm.h + task.first_row * gemm.h_stride + index * (gated ? kHalfRows : kPanelRows);
  gemm.kernels.activate(kind, c, task.last_row - task.first_row,
                        gated ? multipliers.gate : multipliers.up, multipliers.up,
                        panel_bias(gemm.weights.w13_bias(task.expert->expert), index), out,
                        gemm.h_stride);
}

void finish(const Gemm2& gemm, const Task& task, int64_t index, const float* c) {
  const int64_t expert = task.expert->expert;
  gemm.kernels.store(c, task.last_row - task.first_row, gemm.weights.multipliers(expert).down,
                     panel_bias(gemm.weights.w2_bias(expert), index),
                     gemm.grouping.row_slot + task.first_row, gemm.y + index * kPanelRows,
                     gemm.y_stride);
}

// ---- What they share ----

// A task's tokens in tiles of nearly equal size.
struct Tiles {
  int64_t tokens;
  int64_t count;

  Tiles(const Task& task, const StageTactic& tactic)
      : tokens(task.last_row - task.first_row), count(ceil_div(tokens, tactic.token_tile)) {}
  int first(int64_t tile) const { return static_cast<int>(tokens * tile / count); }
  int size(int64_t tile) const { return first(tile + 1) - first(tile); }
};

// A piece of k, in blocks.
struct Piece {
  int64_t first;
  int64_t blocks;
};

int64_t scale_groups(const Piece& piece) { return ceil_div(piece.blocks, kRoundBlocks); }

// Of one tile: [groups][tokens].
template <typename Gemm>
void pack_scales(const Gemm& gemm, int32_t first_row, int tokens, const Piece& piece, float* out) {
  const int64_t groups = scale_groups(piece);
  for (int m = 0; m < tokens; ++m) {
    const float* scales = input_scales(gemm, first_row + m) + piece.first / kRoundBlocks;
    for (int64_t group = 0; group < groups; ++group) out[group * tokens + m] = scales[group];
  }
}

template <typename Gemm>
void pack_inputs(const Gemm& gemm, const Task& task, const Tiles& tiles, const Piece& piece,
                 const StageScratch& scratch) {
  const int64_t first_k = piece.first * kBlock;
  const int64_t values = std::min(depth(gemm) - first_k, piece.blocks * kBlock);
  const FormatKernels& kernels = kernels_of(gemm);
  const int64_t items = piece.blocks * kernels.x_block_items;
  for (int64_t tile = 0; tile < tiles.count; ++tile) {
    const uint16_t* rows[kMaxTokenTile];
    const int first = tiles.first(tile);
    for (int i = 0; i < tiles.size(tile); ++i)
      rows[i] = input_row(gemm, task.first_row + first + i);
    kernels.pack_x(rows, tiles.size(tile), first_k, values, scratch.x + first * items);
    if (input_scales(gemm, 0) != nullptr)
      pack_scales(gemm, task.first_row + first, tiles.size(tile), piece,
                  scratch.x_scales + first * scale_groups(piece));
  }
}

// args.x and args.x_scales: those of the first tile.
void multiply_tiles(void (*multiply)(const TileArgs*), TileArgs args, const Tiles& tiles,
                    const Piece& piece, float* c, int64_t items) {
  const uint32_t* const x = args.x;
  const float* const x_scales = args.x_scales;
  for (int64_t tile = 0; tile < tiles.count; ++tile) {
    args.tokens = tiles.size(tile);
    args.x = x + tiles.first(tile) * items;
    if (x_scales != nullptr) args.x_scales = x_scales + tiles.first(tile) * scale_groups(piece);
    args.c = c + static_cast<int64_t>(tiles.first(tile)) * kPanelRows;
    multiply(&args);
    args.prefetch_bytes = 0;  // The first tile has brought the panel into the caches.
  }
}

template <typename Gemm>
void multiply_panel(const Gemm& gemm, const uint8_t* weights, const Tiles& tiles,
                    const Piece& piece, const StageScratch& scratch, float* c) {
  const FormatKernels& kernels = kernels_of(gemm);
  const int64_t items = piece.blocks * kernels.x_block_items;
  TileArgs args{};
  args.k_blocks = static_cast<int>(piece.blocks);
  args.accumulate = piece.first != 0;
  args.prefetch_bytes = gemm.tactic.prefetch_bytes;
  args.x = scratch.x;
  args.x_scales = input_scales(gemm, 0) == nullptr ? nullptr : scratch.x_scales;
  args.weights = weights + panel_offset(gemm.weights.spec().weights, piece.first);
  if (gemm.tactic.feed == Feed::kDirect) {
    multiply_tiles(kernels.tile, args, tiles, piece, c, items);
    return;
  }
  StageArgs stage{args.weights, scratch.staged, args.k_blocks, args.prefetch_bytes, 0};
  args.weights = reinterpret_cast<const uint8_t*>(scratch.staged);
  for (; stage.group < gemm.kernels.stage_groups; ++stage.group) {
    kernels.stage(&stage);
    args.group = stage.group;
    multiply_tiles(kernels.tile_staged, args, tiles, piece, c, items);
  }
}

// `packed_row`: the first row of the task whose whole inputs scratch.x holds, or -1.
template <typename Gemm>
void run_task(const Gemm& gemm, const Task& task, const StageScratch& scratch,
              int32_t& packed_row) {
  const int64_t k_blocks = grid(gemm).k_blocks;
  const int64_t step = step_blocks(gemm.tactic, k_blocks);
  const Tiles tiles(task, gemm.tactic);
  const bool whole = step == k_blocks;
  for (int64_t first = 0; first < k_blocks; first += step) {
    const Piece piece{first, std::min(step, k_blocks - first)};
    if (packed_row != task.first_row) pack_inputs(gemm, task, tiles, piece, scratch);
    packed_row = whole ? task.first_row : -1;
    for (int64_t index = task.first_panel; index < task.last_panel; ++index) {
      float* const c =
          scratch.c + (whole ? 0 : (index - task.first_panel) * tiles.tokens * kPanelRows);
      multiply_panel(gemm, panel(gemm, task.expert->expert, index), tiles, piece, scratch, c);
      if (first + step >= k_blocks) finish(gemm, task, index, c);
    }
  }
}

template <typename Gemm>
void run_stage(const Gemm& gemm, TaskCounter& counter, const StageScratch& scratch) {
  const int stage = stage_index(gemm);
  int32_t packed_row = -1;
  for (int64_t number = counter.next(); number < gemm.grouping.tasks[stage];
       number = counter.next())
    run_task(gemm, task_at(gemm.grouping, stage, gemm.tactic, grid(gemm).panels, number), scratch,
             packed_row);
}

}  // namespace

ScratchSizes scratch_sizes(const StageTactic& tactic, int64_t k_blocks,
                           const FormatKernels& kernels, ActivationFormat activations) {
  constexpr int64_t kPackOverrun = 4;
  const int64_t step = step_blocks(tactic, k_blocks);
  ScratchSizes sizes;
  sizes.x_items = kTokenBlock * step * kernels.x_block_items + kPackOverrun;
  if (activations != ActivationFormat::kA16)
    sizes.x_scales = kTokenBlock * ceil_div(step, kRoundBlocks);
  sizes.c_values =
      int64_t{kTokenBlock} * kPanelRows * (step == k_blocks ? 1 : tactic.panels_per_task);
  if (tactic.feed == Feed::kStaged)
    sizes.staged_items = round_up(step, kStepBlocks) * kernels.staged_block_items;
  return sizes;
}

ScratchSizes max_sizes(const ScratchSizes& a, const ScratchSizes& b) {
  return {std::max(a.x_items, b.x_items), std::max(a.x_scales, b.x_scales),
          std::max(a.c_values, b.c_values), std::max(a.staged_items, b.staged_items)};
}

void run_tasks(const Gemm1& gemm, TaskCounter& counter, const StageScratch& scratch) {
  run_stage(gemm, counter, scratch);
}
void run_tasks(const Gemm2& gemm, TaskCounter& counter, const StageScratch& scratch) {
  run_stage(gemm, counter, scratch);
}

}  // namespace moetune::cpu

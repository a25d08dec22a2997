#include "cpu/tactic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/status_macros.h"
#include "ops/moe/format.h"

namespace moetune::cpu {
namespace {

Error bad(const char* parameter, int value, const std::string& allowed) {
  return {ErrorCode::kInvalidArgument, fmt::format("CPU tactic: {} = {}", parameter, value),
          fmt::format("Allowed: {}.", allowed)};
}

// How `tokens` tokens spread over the experts if all are equally likely.
struct Load {
  double touched;  // Experts with tokens.
  double rows;     // Tokens of one of them.
};

Load expected_load(const FusedMoeSpec& spec, int64_t tokens) {
  const auto experts = static_cast<double>(spec.experts);
  const double chosen = std::min(1.0, static_cast<double>(spec.top_k) / experts);
  const double rows = static_cast<double>(tokens) * spec.top_k;
  const double touched =
      std::max(1.0, experts * -std::expm1(static_cast<double>(tokens) * std::log1p(-chosen)));
  return {touched, std::max(1.0, rows / touched)};
}

// One GEMM of one expert.
struct Matrix {
  WeightFormat format;
  int64_t k;
  int64_t rows;
};

// From how many tokens of an expert on converting weights once is cheaper than converting them in
// every tile. What converting costs differs: bf16 to f32 is two instructions that hide behind the
// multiplications, fp8 to f32 takes as long as one token, fp4 to f32 as long as two, fp4 to pairs
// of integers as long as one; to bf16 pairs, fp4 is a table look-up, fp8 is not (not measured).
// Where the processor converts fp16 as it loads it, converted weights are only more bytes to read.
double staging_pays_from(WeightFormat format, const KernelTable& kernels) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const bool fp8 = format == WeightFormat::kFp8 || format == WeightFormat::kFp8Block;
  switch (format_kernels(kernels, format).arithmetic) {
    case Arithmetic::kBf16Pairs: return fp8 ? 16 : 32;
    case Arithmetic::kInt16Pairs: return 48;
    case Arithmetic::kF32: break;
  }
  if (format == WeightFormat::kBf16) return 24;
  const bool converts_itself = kernels.max_tile > 3;
  if (!converts_itself) return 5;
  return fp8 ? 14 : kNever;
}

int direct_tile(WeightFormat format, const KernelTable& kernels) {
  // With 16 registers, sums of two tokens are the most that a whole panel has registers for: wider
  // bf16 tiles go through the stream in two halves, one after the other, and lose more by that than
  // converting less brings.
  if (format == WeightFormat::kBf16 && kernels.max_tile <= 6) return 2;
  return kernels.max_tile;
}

// What a core reads while one line is on its way from memory. Few tokens use up fp4 and fp8 as fast
// as memory delivers them; 16-bit values wait anyway, and 1 KiB was never worse there.
int prefetch_bytes(WeightFormat format) {
  return bits_per_value(format_parts(format).values) == 16 ? 1024 : 4096;
}

// Enough tasks that the last one to end keeps nobody waiting for long, and no more: neighbouring
// panels are one address stream, and a task packs its activations once.
int task_panels(const Matrix& matrix, const Load& load, int threads, int most) {
  constexpr double kTasksPerThread = 8;
  const double panels =
      load.touched * static_cast<double>((matrix.rows + kPanelRows - 1) / kPanelRows);
  const auto wanted = static_cast<unsigned>(std::max(1.0, panels / (kTasksPerThread * threads)));
  return std::min(static_cast<int>(std::bit_floor(wanted)), most);
}

size_t or_typical(size_t bytes, size_t typical) { return bytes != 0 ? bytes : typical; }

StageTactic default_stage(const Matrix& matrix, const Load& load, const KernelTable& kernels,
                          const Topology& topology, int threads) {
  const FormatKernels& own = format_kernels(kernels, matrix.format);
  StageTactic stage;
  if (own.stage == nullptr || load.rows < staging_pays_from(matrix.format, kernels)) {
    stage.feed = Feed::kDirect;
    stage.token_tile = direct_tile(matrix.format, kernels);
    stage.prefetch_bytes = prefetch_bytes(matrix.format);
    stage.panels_per_task = task_panels(matrix, load, threads, 8);
    return stage;
  }
  stage.feed = Feed::kStaged;
  stage.token_tile = kernels.max_tile;
  stage.panels_per_task = task_panels(matrix, load, threads, 16);
  // Half of the first-level cache, and a little for scales, holds the converted rows of one group;
  // of the sizes that the space has, the largest that fits.
  const auto half = static_cast<unsigned>(or_typical(topology.l1_bytes, 32 << 10) / 2);
  const unsigned values =
      (half + half / 16) / (4 * static_cast<unsigned>(own.staged_block_items)) * kBlock;
  stage.k_block = static_cast<int>(std::clamp(std::bit_floor(values), 128u, 512u));
  return stage;
}

}  // namespace

const FormatKernels& format_kernels(const KernelTable& kernels, WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16: return *kernels.bf16;
    case WeightFormat::kFp16: return *kernels.fp16;
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block: return *kernels.fp8;
    case WeightFormat::kNvfp4: return *kernels.nvfp4;
    case WeightFormat::kMxfp4: return *kernels.mxfp4;
  }
  return *kernels.bf16;
}

std::string to_string(const StageTactic& tactic) {
  return fmt::format("{}/tile={}/panels={}/k={}/ahead={}",
                     tactic.feed == Feed::kStaged ? "staged" : "direct", tactic.token_tile,
                     tactic.panels_per_task, tactic.k_block, tactic.prefetch_bytes);
}

Status validate(const StageTactic& tactic, const KernelTable& kernels, WeightFormat format) {
  constexpr int kStep = kBlock * kStepBlocks;
  const FormatKernels& own = format_kernels(kernels, format);
  if (tactic.token_tile < 1 || tactic.token_tile > kernels.max_tile)
    return bad("token_tile", tactic.token_tile,
               fmt::format("1 to {} with {}", kernels.max_tile, kernels.name));
  if (tactic.panels_per_task < 1)
    return bad("panels_per_task", tactic.panels_per_task, "1 or more");
  if (tactic.k_block < 0 || tactic.k_block % kStep != 0)
    return bad("k_block", tactic.k_block, fmt::format("0 or a multiple of {}", kStep));
  if (tactic.prefetch_bytes < 0) return bad("prefetch_bytes", tactic.prefetch_bytes, "0 or more");
  if (tactic.feed == Feed::kStaged && own.stage == nullptr)
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("CPU tactic: {} kernels do not stage {}", kernels.name, to_string(format)),
        "They multiply the packed weights as they are: use feed = direct."};
  return {};
}

Status validate(const LayerTactic& tactic, const KernelTable& kernels, WeightFormat format) {
  MOETUNE_RETURN_IF_ERROR(validate(tactic.gemm1, kernels, format));
  return validate(tactic.gemm2, kernels, format);
}

LayerTactic default_tactic(const FusedMoeSpec& spec, int64_t tokens, const KernelTable& kernels,
                           const Topology& topology, int threads) {
  const int64_t gated = spec.gated() ? 2 : 1;
  const Load load = expected_load(spec, tokens);
  return {default_stage({spec.weights, spec.hidden, gated * spec.intermediate}, load, kernels,
                        topology, threads),
          default_stage({spec.weights, spec.intermediate, spec.hidden}, load, kernels, topology,
                        threads)};
}

}  // namespace moetune::cpu

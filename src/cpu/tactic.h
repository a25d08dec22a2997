// How the CPU layer is run: the free choices of each GEMM stage, and the written heuristic for
// them.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/kernels/kernel_table.h"
#include "cpu/topology.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune::cpu {

enum class Feed : uint8_t {
  kDirect,  ///< Weights are converted in the tile kernel's registers: nothing is written, every
            ///< tile converts again.
  kStaged,  ///< A piece of a panel is converted once into a scratch in the nearest caches and used
            ///< by all tiles.
};

/// Tokens of an expert that a thread takes at once. 32 and 128 were tried and won nowhere.
constexpr int kTokenBlock = 64;

/// Choices of one GEMM stage. Every value gives the same result up to the rounding of f32 sums.
struct StageTactic {
  Feed feed = Feed::kDirect;
  int token_tile = 1;         ///< Tokens of one tile at most; an expert's tokens are split evenly.
  int panels_per_task = 1;    ///< Panels of 32 weight rows that a thread takes at once.
  int k_block = 0;            ///< Values of k worked on at a time, a multiple of 128; 0: all of k.
  int prefetch_bytes = 1024;  ///< How far ahead the weight stream is prefetched.

  bool operator==(const StageTactic&) const = default;
};

struct LayerTactic {
  StageTactic gemm1;
  StageTactic gemm2;

  bool operator==(const LayerTactic&) const = default;
};

/// The kernels of a format.
const FormatKernels& format_kernels(const KernelTable& kernels, WeightFormat format);

/// "direct/tile=1/panels=1/k=0/ahead=1024"
std::string to_string(const StageTactic& tactic);

/// kInvalidArgument with the parameter that these kernels cannot follow.
Status validate(const StageTactic& tactic, const KernelTable& kernels, WeightFormat format);
Status validate(const LayerTactic& tactic, const KernelTable& kernels, WeightFormat format);

/// The tactic for `tokens` tokens that is used untuned. Valid for every problem.
LayerTactic default_tactic(const FusedMoeSpec& spec, int64_t tokens, const KernelTable& kernels,
                           const Topology& topology, int threads);

}  // namespace moetune::cpu

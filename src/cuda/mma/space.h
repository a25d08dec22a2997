// The schemes of cuda.mma, the space of each stage, and what is used untuned.
#pragma once

#include <vector>

#include "cuda/mma/gemm_tactic.h"
#include "moetune/runner.h"

namespace moetune::cuda {

/// A scheme's two GEMMs.
struct SchemePaths {
  const char* name;
  GemmPath gemm1;
  GemmPath gemm2;
};

/// "stream", "tile", "stream-tile": two GEMMs and a combine kernel. "stream-combine": the second
/// GEMM combines.
const std::vector<SchemePaths>& scheme_paths();
/// nullptr for a name that is none.
const SchemePaths* find_scheme(std::string_view name);

/// For a device of these limits. The specification must be supported.
std::vector<Scheme> make_schemes(const FusedMoeSpec& spec, const ArchitectureLimits& limits);

/// The written heuristic: docs/kernels-mma.md has the measurements it comes from.
Candidate default_tactics(const FusedMoeSpec& spec, const ArchitectureLimits& limits,
                          int64_t tokens);

}  // namespace moetune::cuda

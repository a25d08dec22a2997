// The workbench of fused_moe: makes inputs and weights, knows the right outputs, counts the least
// work.
//
// Judging a call has two depths. Some rows are compared with the reference, which takes a fraction
// of a second each and is therefore remembered per (case, scale, sample). All other rows are
// compared with the output of the first candidate whose reference rows were right: an error in any
// row then shows as a disagreement between candidates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "moetune/measuring.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "ops/moe/weights.h"

namespace moetune {

/// The tuner's view of a specification: {"hidden", "2048"}, {"weights", "nvfp4"}, ... Everything in
/// it that is not the default of an optional part, so that keys stay readable. Equal problems mean
/// equal specifications.
Problem moe_problem(const FusedMoeSpec& spec);

/// The inverse. kParse naming the attribute that is missing, unknown or malformed.
Result<FusedMoeSpec> moe_spec_of(const Problem& problem);

struct MoeWorkbenchOptions {
  DataKind kind = DataKind::kRealistic;  ///< kExact: judged bit by bit, with exact_variant(spec).
  uint64_t seed = 0;
  int reference_rows = 2;  ///< Rows compared with the reference in each judged call.
  size_t last_level_cache_bytes =
      32u << 20;    ///< Scale::kSubset holds as many experts as exceed three times this.
  int threads = 1;  ///< For inputs, references and comparisons.
  /// Kernels of serving engines are judged too: right is also what is close to the operator with
  /// one of their roundings (reference.h), where activations are fp8 within fp8_product_limits()
  /// (verify.h). Realistic data only.
  bool accepts_engine_roundings = false;
};

/// Thread-compatible. With `weights`, a source of all of the specification's experts, those take
/// the place of random ones; exact data is always made up. kInvalidArgument or kUnsupported where
/// weights of the specification cannot be made, or `weights` are not all of its experts.
Result<std::unique_ptr<Workbench>> make_moe_workbench(
    const FusedMoeSpec& spec, const MoeWorkbenchOptions& options,
    std::unique_ptr<WeightSource> weights = nullptr);

/// Experts that Scale::kSubset holds: spec.held_experts() where a subset would save nothing or the
/// router could not keep to it (expert groups, several ranks).
int64_t subset_experts(const FusedMoeSpec& spec, size_t last_level_cache_bytes);

/// Tokens of a call at Scale::kSubset, so that an expert gets as many rows as in the whole. At
/// least 1.
int64_t subset_tokens(const FusedMoeSpec& spec, size_t last_level_cache_bytes, int64_t tokens);

/// What one call must do at the least: weights of the experts touched, hidden states and output
/// once; two operations per weight and row.
Work moe_work(const FusedMoeSpec& spec, std::span<const int64_t> rows_per_expert, int64_t tokens);

}  // namespace moetune

// One candidate of cuda.mma made runnable: its kernels, and how a call becomes launches.
//
// A call is worked off in passes of at most kPassTokens tokens. A pass launches: routing and
// grouping (one to three kernels), GEMM 1 with the activation, GEMM 2, combine. From sm_90 on each
// kernel but the first starts before its predecessor has ended and waits for it where it needs its
// results. Grids have the size that the number of tokens can need at most; how many tiles there are
// is known on the device alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/mma/gemm_tactic.h"
#include "cuda/mma/packed_weights.h"
#include "cuda/mma/programs.h"
#include "cuda/mma/workspace.h"
#include "moetune/runner.h"

namespace moetune::cuda {

class MmaLayer : public Executable {
 public:
  /// `label` names the candidate in messages. kCompile, kRun as the JIT and the driver say.
  static Result<std::shared_ptr<Executable>> compile(const ContextPtr& context,
                                                     const FusedMoeSpec& spec,
                                                     const GemmTactic& gemm1,
                                                     const GemmTactic& gemm2, int64_t max_tokens,
                                                     const std::string& label);

  /// The programs that compile() would ask the JIT for.
  static std::vector<CompileRequest> programs(const ContextPtr& context, const FusedMoeSpec& spec,
                                              const GemmTactic& gemm1, const GemmTactic& gemm2,
                                              const std::string& label);

  Status run(const Call& call) override;
  Status run_stage(int stage, const Call& call) override;

 private:
  struct Inputs;
  struct Pass;
  enum Part : unsigned { kGroup = 1, kGemm1 = 2, kGemm2 = 4, kCombine = 8, kEverything = 15 };

  MmaLayer(const ContextPtr& context, const FusedMoeSpec& spec, const GemmTactic& gemm1,
           const GemmTactic& gemm2, int64_t max_tokens);
  std::vector<ProgramRequest> requests(const std::string& label) const;
  Status load(const std::string& label);
  Result<Inputs> inputs_of(const Call& call) const;
  Status run_parts(const Call& call, unsigned parts);
  Status run_pass(const Pass& pass, unsigned parts) const;
  Status route_and_group(const Pass& pass, bool& first) const;
  Status group(const Pass& pass, const kernels::GroupParams& p, bool& first) const;
  Status append_shared(const Pass& pass, bool& first) const;
  Status copy_hidden(const Pass& pass, bool& first) const;
  Status round_h(const Pass& pass, bool& first) const;
  Status round_rows(const Pass& pass, const kernels::RoundParams& p, bool& first) const;
  Status run_gemm1(const Pass& pass, bool& first) const;
  Status run_gemm2(const Pass& pass, bool& first) const;
  Status run_combine(const Pass& pass, bool& first) const;
  kernels::GemmParams gemm_params(const Pass& pass, int matrix) const;
  LaunchShape gemm_shape(const Pass& pass, const GemmTactic& tactic,
                         const MatrixLayout& matrix) const;
  /// A launch after the first of a pass may start early.
  LaunchShape shape(unsigned x, unsigned y, unsigned threads, bool& first) const;

  ContextPtr context_;
  FusedMoeSpec spec_;
  WeightLayout layout_;
  GemmTactic gemm1_, gemm2_;
  int64_t max_tokens_;
  size_t workspace_bytes_;
  bool programmatic_;

  Kernel route_, route_and_group_, route_and_group_few_;
  Kernel group_few_, group_, group_count_, group_place_, append_shared_, align_, round_;
  Kernel gemm1_kernel_, gemm2_kernel_, combine_;
};

}  // namespace moetune::cuda

// cpu.packed: the runner of fused_moe on the CPU. One layout (panels), one scheme of two stages
// (gemm1, gemm2).
#pragma once

#include <memory>
#include <string>

#include "cpu/kernels/kernel_table.h"
#include "cpu/tactic.h"
#include "cpu/threads.h"
#include "cpu/topology.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune::cpu {

/// What runners of one process share: kernels, threads, and what is known of the processor.
struct Machine {
  Topology topology;
  const KernelTable* kernels = nullptr;
  std::unique_ptr<ThreadPool> threads;
};

/// With `threads` threads; 0: Topology::default_threads(). Errors are choose_isa()'s, and
/// kInvalidArgument for a number of threads below 0 or above 1024.
Result<std::shared_ptr<Machine>> open_machine(int threads);

/// kInvalidArgument for a specification that is not valid; all others have kernels.
Result<std::unique_ptr<TunableRunner>> make_packed_runner(const FusedMoeSpec& spec,
                                                          std::shared_ptr<Machine> machine);

/// A stage's space, and a stage's tactic as the tuner writes it.
Space stage_space(const KernelTable& kernels, WeightFormat format);
Tactic to_tactic(const StageTactic& stage);
/// kInvalidArgument where a parameter is missing or has a value of the wrong kind.
Result<StageTactic> to_stage(const Tactic& tactic);

}  // namespace moetune::cpu

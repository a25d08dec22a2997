// cuda.mma: the fused MoE layer on any NVIDIA GPU from sm_80 on, with kernels of this project
// compiled where they run (cp.async, mma.sync). docs/kernels-mma.md says how they work and what was
// measured.
#pragma once

#include <memory>

#include "cuda/context.h"
#include "moetune/moe_spec.h"
#include "moetune/runner.h"

namespace moetune::cuda {

/// kUnsupported, saying why, for a device before sm_80 or a specification that the family cannot
/// run; kInvalidArgument for one that is not valid.
Result<std::unique_ptr<TunableRunner>> make_mma_runner(const FusedMoeSpec& spec,
                                                       const ContextPtr& context);

}  // namespace moetune::cuda

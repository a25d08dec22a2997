// The weights that a C program hands over, as a source.
#pragma once

#include <memory>

#include "moetune/moe_spec.h"
#include "moetune/moetune.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune::capi {

/// Everything pointed to must outlive the source.
Result<std::unique_ptr<WeightSource>> source_of(const FusedMoeSpec& spec,
                                                const moetune_weights* weights);
Result<std::unique_ptr<WeightSource>> source_of(const FusedMoeSpec& spec,
                                                const moetune_dl_weights* weights);

}  // namespace moetune::capi

// A layer's router, from a checkpoint.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "model/model_spec.h"
#include "moetune/checkpoint.h"
#include "moetune/result.h"

namespace moetune::checkpoint {

/// Errors as checkpoint_router()'s.
Result<RouterWeights> read_router_weights(Checkpoint& checkpoint, const ModelSpec& model,
                                          int64_t layer);

}  // namespace moetune::checkpoint

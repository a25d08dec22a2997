// One rank's experts of one layer, straight from a checkpoint: a chunk points into the mapped files
// where the checkpoint has a tensor as the operator wants it, and is put together in memory of one
// expert where it has not.
#pragma once

#include <cstdint>
#include <memory>

#include "checkpoint/checkpoint.h"
#include "model/model_spec.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune::checkpoint {

/// The experts of `rank` as moe_spec.h lays them out. `spec` is what layer_spec() says of `model`
/// with its tp and ep; routing, activation (but for having a gate) and output may be others. F32
/// experts count as bf16 and are rounded to it. A bias of down is added by the first of the TP
/// ranks.
///
/// Looks at every tensor's type and shape at once; numbers are looked at when their expert's chunk
/// is made. kNotFound for a layer or tensor that is not there; kParse for one whose type or shape
/// is not what model and format say; kUnsupported for a format that moetune does not have;
/// kInvalidArgument where `spec` is of another format or share. Of a chunk: kParse for a scale or
/// bias that makes no sense. Messages name file and tensor. Thread-compatible; keeps the
/// checkpoint.
Result<std::unique_ptr<WeightSource>> make_expert_weights(std::shared_ptr<Checkpoint> checkpoint,
                                                          const ModelSpec& model, int64_t layer,
                                                          const FusedMoeSpec& spec, int rank);

}  // namespace moetune::checkpoint

// Where a layer's own weights are, for those who measure with them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune {

/// One rank's experts of a layer of a checkpoint.
struct RealWeights {
  std::string model;  ///< A folder, or the config.json in it. Absolute, as a helper opens it too.
  int64_t layer = 0;
  int rank = 0;
};

/// Errors as checkpoint_weights()'.
Result<std::unique_ptr<WeightSource>> open_weights(const RealWeights& weights,
                                                   const FusedMoeSpec& spec);

}  // namespace moetune

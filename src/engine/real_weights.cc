#include "engine/real_weights.h"

#include "moetune/checkpoint.h"

namespace moetune {

Result<std::unique_ptr<WeightSource>> open_weights(const RealWeights& weights,
                                                   const FusedMoeSpec& spec) {
  return checkpoint_weights(weights.model, weights.layer, spec, weights.rank);
}

}  // namespace moetune

// The random streams that fused_moe's data come from, kept apart so that no two kinds of data share
// bits under one seed.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace moetune {

enum class RandomUse : uint64_t {
  kWeights,
  kPopularity,
  kRouterBias,
  kRouting,
  kHidden,
  kRoutingWeights,
  kCheckedRows
};

inline Random random_stream(uint64_t seed, RandomUse use, uint64_t index = 0) {
  return Random(seed, static_cast<uint64_t>(use) << 56 | index);
}

}  // namespace moetune

// What a look-up costs on this machine.
#pragma once

#include <cstdint>

#include "moetune/autotuner.h"

namespace moetune::cli {

struct LookupCost {
  int64_t lookups = 0;
  double first_ns = 0;   ///< Per look-up, over the first tenth.
  double last_ns = 0;    ///< Over the last tenth: the same where nothing grows.
  double median_ns = 0;  ///< Over blocks of a thousand.
};

/// Looks up token counts in [1, max_tokens] in an order that no branch predictor learns.
LookupCost measure_lookups(const PlanHandle& plan, int64_t max_tokens, int64_t lookups);

}  // namespace moetune::cli

// An engine's file against what tuning measured here: whether it says the same, and where it is
// known to be slower than the engine's default.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exchange/engine.h"
#include "exchange/triton_table.h"
#include "moetune/moe_spec.h"
#include "moetune/plan.h"
#include "moetune/result.h"

namespace moetune::exchange {

struct TableVerdict {
  int64_t tokens = 0;  ///< Where it was measured.
  enum class Kind : uint8_t {
    kSame,     ///< The file has what the plan has.
    kBetter,   ///< The plan has another tactic, which beat the default.
    kSlower,   ///< The file's own tactic was measured, and lost to the default.
    kUnknown,  ///< The file's tactic differs, and nothing is known of it.
  } kind = Kind::kUnknown;
  double speedup = 1;  ///< kBetter: of the plan's tactic; kSlower: of the file's. Over the default.
};

/// The plan of that layer among those of the engine's own kernels; nullptr where there is none.
const Plan* find_engine_plan(const TunedConfiguration& configuration, Engine engine,
                             const FusedMoeSpec& spec);

/// One verdict for each decision of the plan. Errors as host_of().
Result<std::vector<TableVerdict>> compare_with_plan(const TritonTable& table, const Plan& plan);

/// "as tuned at 5 of 7 numbers of tokens; slower than the default at 64 (0.93x); ..."
std::string summary_of(const std::vector<TableVerdict>& verdicts);

}  // namespace moetune::exchange

// Tuning one problem: races, layouts, confirmations, vetoes and interval ends within a budget, and
// the plan they lead to.
#pragma once

#include "moetune/autotuner.h"

namespace moetune {

/// AutoTuner::tune() without publishing: measures and decides. The plan in the report is valid
/// whenever and however measuring ends. `store` may be null: nothing is kept then beyond the
/// report.
///
/// kInvalidArgument where the request makes no sense; whatever the default fails with where it does
/// not run or is wrong: there is nothing to fall back to.
Result<TuneReport> tune_problem(const TuneRequest& request);

}  // namespace moetune

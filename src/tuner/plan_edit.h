// Plans that grow bucket by bucket, as choose_one() meets them.
#pragma once

#include "moetune/plan.h"

namespace moetune {

/// A decision for the default where nothing was measured.
Decision unmeasured(const Candidate& fallback, int64_t from, int64_t to);

/// The plan with `decision` in its interval: what others covered of it is cut off, what lies
/// between the plan's end and the decision is covered by unmeasured(fallback).
Plan with_decision(Plan plan, Decision decision, const Candidate& fallback);

}  // namespace moetune

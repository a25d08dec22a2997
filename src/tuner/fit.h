// Whether what was decided once still fits what there is today.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moetune/plan.h"
#include "moetune/runner.h"

namespace moetune {

/// Why a candidate of this very runner cannot run at `tokens`: its scheme, stages, spaces, or the
/// runner's own word. Empty: it can.
std::string why_unfit(const TunableRunner& runner, const Candidate& candidate, int64_t tokens);

/// why_unfit() over an interval: at every size of a short one, at 512 sizes spread over a long one,
/// both ends included.
std::string why_unfit(const TunableRunner& runner, const Candidate& candidate, int64_t from,
                      int64_t to);

/// The candidate with each tactic in the order of today's space; as it is where it does not fit.
Candidate in_todays_order(const TunableRunner& runner, const Candidate& candidate);

/// The runner of that name, or nullptr.
TunableRunner* find_runner(std::span<TunableRunner* const> runners, std::string_view name);

struct Fit {
  enum class Kind : uint8_t { kFits, kStale, kDropped, kNotDeterministic };
  Kind kind = Kind::kFits;
  std::string reason;  ///< Empty where it fits.
};

/// Checks every decision of a plan against today's runners, the default's first, and brings tactics
/// into today's order. Where the default reads another layout than the plan, one decision that does
/// not fit drops all. With `deterministic`, candidates that are not do not fit.
std::vector<Fit> check_fit(Plan& plan, std::span<TunableRunner* const> runners,
                           bool deterministic = false);

}  // namespace moetune

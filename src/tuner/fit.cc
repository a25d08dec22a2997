#include "tuner/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tuner/deterministic_runner.h"

namespace moetune {
namespace {

const Scheme* find_scheme(const TunableRunner& runner, const std::string& name) {
  for (const Scheme& scheme : runner.schemes()) {
    if (scheme.name == name) return &scheme;
  }
  return nullptr;
}

Fit dropped(std::string reason) { return {Fit::Kind::kDropped, std::move(reason)}; }

std::string default_layout(const TunableRunner& runner, int64_t tokens) {
  return runner.layout(runner.default_candidate(tokens));
}

Fit check_default(const Plan& plan, const Decision& decision, const TunableRunner& runner) {
  const std::string layout = default_layout(runner, decision.tokens);
  if (layout == plan.layout) return {};
  return dropped(fmt::format("the default reads layout {}, the plan has {}", layout, plan.layout));
}

Fit check_decision(const Plan& plan, Decision& decision, std::span<TunableRunner* const> runners,
                   bool deterministic) {
  if (decision.is_default) return check_default(plan, decision, *runners.front());
  const TunableRunner* runner = find_runner(runners, decision.candidate.runner);
  if (runner == nullptr) {
    return dropped(fmt::format("there is no runner {}", decision.candidate.runner));
  }
  if (decision.candidate.runner_version != runner->version()) {
    return {Fit::Kind::kStale,
            fmt::format("measured with version {} of {}, which is at {} now",
                        decision.candidate.runner_version, runner->name(), runner->version())};
  }
  decision.candidate = in_todays_order(*runner, decision.candidate);
  if (std::string reason = why_unfit(*runner, decision.candidate, decision.from, decision.to);
      !reason.empty()) {
    return dropped(std::move(reason));
  }
  if (const std::string layout = runner->layout(decision.candidate); layout != plan.layout) {
    return dropped(fmt::format("it reads layout {}, the plan has {}", layout, plan.layout));
  }
  if (std::string reason = why_not_deterministic(*runner, decision.candidate);
      deterministic && !reason.empty()) {
    return {Fit::Kind::kNotDeterministic, std::move(reason)};
  }
  return {};
}

}  // namespace

TunableRunner* find_runner(std::span<TunableRunner* const> runners, std::string_view name) {
  for (TunableRunner* runner : runners) {
    if (runner->name() == name) return runner;
  }
  return nullptr;
}

std::string why_unfit(const TunableRunner& runner, const Candidate& candidate, int64_t tokens) {
  const Scheme* scheme = find_scheme(runner, candidate.scheme);
  if (scheme == nullptr) {
    return fmt::format("{} has no scheme {}", runner.name(), candidate.scheme);
  }
  if (scheme->stages.size() != candidate.stages.size()) {
    return fmt::format("scheme {} has {} stages, not {}", candidate.scheme, scheme->stages.size(),
                       candidate.stages.size());
  }
  for (size_t i = 0; i < scheme->stages.size(); ++i) {
    const StageSpace& stage = scheme->stages[i];
    if (stage.name != candidate.stages[i].name) {
      return fmt::format("stage {} is {}, not {}", i, stage.name, candidate.stages[i].name);
    }
    if (std::string reason = stage.space.why_excluded(candidate.stages[i].tactic, tokens);
        !reason.empty()) {
      return fmt::format("{}: {}", stage.name, reason);
    }
  }
  return runner.why_excluded(candidate, tokens);
}

std::string why_unfit(const TunableRunner& runner, const Candidate& candidate, int64_t from,
                      int64_t to) {
  constexpr int64_t kSizes = 512;
  const int64_t gaps = std::min(to - from, kSizes - 1);
  for (int64_t i = 0; i <= gaps; ++i) {
    // Multiplied out, so that the last one is `to` itself; 128 bits because `to` comes from a file.
    __extension__ using Wide = __int128;
    const int64_t offset =
        gaps == 0 ? 0 : static_cast<int64_t>(static_cast<Wide>(to - from) * i / gaps);
    if (std::string reason = why_unfit(runner, candidate, from + offset); !reason.empty()) {
      return fmt::format("at {} tokens: {}", from + offset, reason);
    }
  }
  return {};
}

Candidate in_todays_order(const TunableRunner& runner, const Candidate& candidate) {
  const Scheme* scheme = find_scheme(runner, candidate.scheme);
  if (scheme == nullptr || scheme->stages.size() != candidate.stages.size()) return candidate;
  Candidate ordered = candidate;
  for (size_t i = 0; i < ordered.stages.size(); ++i) {
    Tactic& tactic = ordered.stages[i].tactic;
    tactic = scheme->stages[i].space.in_order(tactic).value_or(tactic);
  }
  return ordered;
}

std::vector<Fit> check_fit(Plan& plan, std::span<TunableRunner* const> runners,
                           bool deterministic) {
  std::vector<Fit> fits;
  if (runners.empty()) {
    fits.resize(plan.decisions.size(), dropped("there is no runner for the problem"));
    return fits;
  }
  for (Decision& decision : plan.decisions) {
    fits.push_back(check_decision(plan, decision, runners, deterministic));
  }
  const bool all_fit = std::all_of(fits.begin(), fits.end(),
                                   [](const Fit& fit) { return fit.kind == Fit::Kind::kFits; });
  if (all_fit || default_layout(*runners.front(), 1) == plan.layout) return fits;
  for (Fit& fit : fits) {
    if (fit.kind != Fit::Kind::kFits) continue;
    fit =
        dropped(fmt::format("others of its plan no longer fit, and the default does not read "
                            "the plan's layout, {}",
                            plan.layout));
  }
  return fits;
}

}  // namespace moetune

#include "tuner/pinned.h"

#include <fmt/format.h>

#include <algorithm>

#include "tuner/fit.h"

namespace moetune {
namespace {

/// "hidden: 2048 here, 4096 there", for each attribute that differs.
std::vector<std::string> differences(const Problem& here, const Problem& there) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& name, const std::string& ours,
                       const std::string& theirs) {
    if (ours != theirs) found.push_back(fmt::format("{}: {} here, {} there", name, ours, theirs));
  };
  const auto value = [](const Problem& problem, const std::string& name) {
    const auto attribute = problem.attributes.find(name);
    return attribute == problem.attributes.end() ? std::string("none") : attribute->second;
  };
  add("op", here.op, there.op);
  for (const auto& [name, ours] : here.attributes) add(name, ours, value(there, name));
  for (const auto& [name, theirs] : there.attributes) {
    if (!here.attributes.contains(name)) add(name, "none", theirs);
  }
  return found;
}

std::string no_plan(const TunedConfiguration& configuration, const Problem& problem) {
  if (configuration.plans.empty()) return "the configuration has no plan at all";
  std::vector<std::string> fewest;
  for (const Plan& plan : configuration.plans) {
    std::vector<std::string> differ = differences(problem, plan.problem);
    if (fewest.empty() || differ.size() < fewest.size()) fewest = std::move(differ);
  }
  return fmt::format("no plan of this problem; the likest of {} differs in {}",
                     configuration.plans.size(), fmt::join(fewest, ", "));
}

/// A decision for the default says which tactic that was: the same must run now. One that was never
/// measured names the default of another size, as a rule.
std::string why_other_default(const Decision& decision, const TunableRunner& runner) {
  const Candidate& then = decision.candidate;
  if (then.runner != runner.name()) return fmt::format("the default was one of {}", then.runner);
  if (then.runner_version != runner.version()) {
    return fmt::format("the default was that of version {} of {}, which is at {} now",
                       then.runner_version, runner.name(), runner.version());
  }
  if (decision.evidence.fallback.samples == 0) return {};
  const std::string now = runner.default_candidate(decision.tokens).text();
  if (in_todays_order(runner, then).text() == now) return {};
  return fmt::format("the default was {}, it is {} now", then.text(), now);
}

}  // namespace

std::vector<std::string> pin_mismatches(const TunedConfiguration& configuration,
                                        const PinRequest& request) {
  std::vector<std::string> mismatches = request.device.differences(configuration.device);
  const Plan* found = configuration.find(request.problem);
  if (found == nullptr) {
    mismatches.push_back(no_plan(configuration, request.problem));
    return mismatches;
  }
  if (request.max_tokens > found->max_tokens) {
    mismatches.push_back(fmt::format("the plan covers 1 to {} tokens, not {}", found->max_tokens,
                                     request.max_tokens));
  }
  Plan plan = *found;
  const std::vector<Fit> fits = check_fit(plan, request.runners, request.deterministic);
  for (size_t i = 0; i < fits.size(); ++i) {
    const Decision& decision = plan.decisions[i];
    std::string reason = fits[i].reason;
    if (reason.empty() && decision.is_default)
      reason = why_other_default(decision, *request.runners.front());
    if (reason.empty()) continue;
    mismatches.push_back(fmt::format("{}..{} tokens: {}: {}", decision.from, decision.to,
                                     decision.candidate.text(), reason));
  }
  return mismatches;
}

}  // namespace moetune

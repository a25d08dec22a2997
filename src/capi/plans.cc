// Tuned configurations, to be looked into.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/spec.h"
#include "moetune/plan.h"
#include "ops/moe/moe_workbench.h"

struct moetune_plans {
  moetune::TunedConfiguration configuration;
  std::string device_key;
  /// Of each plan: its problem's key, and its candidates' texts.
  std::vector<std::string> problems;
  std::vector<std::vector<std::string>> candidates;
};

namespace moetune::capi {

namespace {

Status load_plans(const char* path, moetune_plans** out) {
  MOETUNE_RETURN_IF_ERROR(need(path, "path"));
  MOETUNE_RETURN_IF_ERROR(need(out, "plans"));
  auto plans = std::make_unique<moetune_plans>();
  MOETUNE_ASSIGN_OR_RETURN(plans->configuration, TunedConfiguration::load(path));
  plans->device_key = plans->configuration.device.key();
  for (const Plan& plan : plans->configuration.plans) {
    plans->problems.push_back(plan.problem.key());
    std::vector<std::string>& texts = plans->candidates.emplace_back();
    for (const Decision& decision : plan.decisions) texts.push_back(decision.candidate.text());
  }
  *out = plans.release();
  return {};
}

Status find_plan(const moetune_plans* plans, const moetune_spec* spec, size_t* index) {
  MOETUNE_RETURN_IF_ERROR(need(plans, "plans"));
  MOETUNE_RETURN_IF_ERROR(need(index, "index"));
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec read, to_spec(spec));
  const Problem problem = moe_problem(read);
  const Plan* plan = plans->configuration.find(problem);
  if (plan == nullptr) {
    return Error{ErrorCode::kNotFound, fmt::format("no plan of {}", problem.key()),
                 "moetune tune makes one"};
  }
  *index = static_cast<size_t>(plan - plans->configuration.plans.data());
  return {};
}

Status check_index(size_t index, size_t count, const char* what) {
  if (index < count) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} {} was asked for; there are {}", what, index, count)};
}

Status describe_plan(const moetune_plans* plans, size_t index, moetune_plan_info* out) {
  MOETUNE_RETURN_IF_ERROR(need(plans, "plans"));
  MOETUNE_RETURN_IF_ERROR(check_index(index, plans->problems.size(), "plan"));
  const Plan& plan = plans->configuration.plans[index];
  moetune_plan_info info = {};
  info.problem = plans->problems[index].c_str();
  info.runner = plan.runner.c_str();
  info.layout = plan.layout.c_str();
  info.max_tokens = plan.max_tokens;
  info.decisions = plan.decisions.size();
  return write_struct(out, info, "moetune_plan_info");
}

Status describe_decision(const moetune_plans* plans, size_t index, size_t number,
                         moetune_decision* out) {
  MOETUNE_RETURN_IF_ERROR(need(plans, "plans"));
  MOETUNE_RETURN_IF_ERROR(check_index(index, plans->problems.size(), "plan"));
  MOETUNE_RETURN_IF_ERROR(check_index(number, plans->candidates[index].size(), "decision"));
  const Decision& decision = plans->configuration.plans[index].decisions[number];
  const Evidence& evidence = decision.evidence;
  moetune_decision info = {};
  info.tokens = decision.tokens;
  info.from = decision.from;
  info.to = decision.to;
  info.is_default = decision.is_default;
  info.resolved = evidence.resolved;
  info.speedup = decision.is_default ? 1 : evidence.speedup;
  info.speedup_low = decision.is_default ? 1 : evidence.speedup_low;
  info.speedup_high = decision.is_default ? 1 : evidence.speedup_high;
  info.default_median_us = evidence.fallback.median_us;
  info.median_us = decision.is_default ? info.default_median_us : evidence.chosen.median_us;
  info.candidate = plans->candidates[index][number].c_str();
  info.workload = evidence.workload.c_str();
  info.note = evidence.note.c_str();
  info.date = evidence.date.c_str();
  return write_struct(out, info, "moetune_decision");
}

}  // namespace

}  // namespace moetune::capi

moetune_status moetune_plans_load(const char* path, moetune_plans** plans) {
  return moetune::capi::guarded([&] { return moetune::capi::load_plans(path, plans); });
}

void moetune_plans_free(moetune_plans* plans) { delete plans; }

const char* moetune_plans_device(const moetune_plans* plans) {
  return plans == nullptr ? "" : plans->device_key.c_str();
}

size_t moetune_plans_count(const moetune_plans* plans) {
  return plans == nullptr ? 0 : plans->problems.size();
}

moetune_status moetune_plans_find(const moetune_plans* plans, const moetune_spec* spec,
                                  size_t* index) {
  return moetune::capi::guarded([&] { return moetune::capi::find_plan(plans, spec, index); });
}

moetune_status moetune_plans_get(const moetune_plans* plans, size_t index,
                                 moetune_plan_info* info) {
  return moetune::capi::guarded([&] { return moetune::capi::describe_plan(plans, index, info); });
}

moetune_status moetune_plans_decision(const moetune_plans* plans, size_t index, size_t decision,
                                      moetune_decision* info) {
  return moetune::capi::guarded(
      [&] { return moetune::capi::describe_decision(plans, index, decision, info); });
}

#include "exchange/plan_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/status_macros.h"
#include "exchange/host_info.h"
#include "ops/moe/moe_workbench.h"

namespace moetune::exchange {
namespace {

using VerdictKind = TableVerdict::Kind;

/// The parameters of `tactic` in the order of `like`, so that equal tactics have equal texts.
Tactic ordered_like(const Tactic& tactic, const Tactic& like) {
  Tactic ordered;
  for (const auto& [name, value] : like.parameters()) {
    if (const ParameterValue* own = tactic.find(name)) ordered.set(name, *own);
  }
  for (const auto& [name, value] : tactic.parameters()) ordered.set(name, value);
  return ordered;
}

/// What runs by this decision, at the number of tokens that it was measured at.
const Tactic* running(const Decision& decision, const HostInfo& host) {
  const Candidate* candidate = &decision.candidate;
  if (decision.is_default) {
    for (const HostInfo::Default& one : host.defaults)
      if (one.from <= decision.tokens) candidate = &one.candidate;
  }
  return candidate->stages.size() == 1 ? &candidate->stages.front().tactic : nullptr;
}

TableVerdict verdict_of(const TritonTable& table, const Decision& decision, const HostInfo& host) {
  TableVerdict verdict{.tokens = decision.tokens};
  const Tactic* const tactic = running(decision, host);
  if (tactic == nullptr) return verdict;
  Candidate from_file = decision.candidate;
  from_file.stages.front().tactic =
      ordered_like(table.nearest(decision.tokens).tactic, from_file.stages.front().tactic);
  const Evidence& evidence = decision.evidence;
  if (ordered_like(from_file.stages.front().tactic, *tactic) == *tactic) {
    verdict.kind = VerdictKind::kSame;
  } else if (!decision.is_default) {
    verdict.kind = VerdictKind::kBetter;
    verdict.speedup = evidence.speedup;
  } else if (evidence.challenger == from_file.text() && evidence.speedup_high < 1) {
    verdict.kind = VerdictKind::kSlower;
    verdict.speedup = evidence.speedup;
  }
  return verdict;
}

std::string list_of(const std::vector<TableVerdict>& verdicts, VerdictKind kind) {
  std::string text;
  for (const TableVerdict& verdict : verdicts) {
    if (verdict.kind == kind)
      text +=
          fmt::format("{}{} ({:.2f}x)", text.empty() ? "" : ", ", verdict.tokens, verdict.speedup);
  }
  return text;
}

}  // namespace

const Plan* find_engine_plan(const TunedConfiguration& configuration, Engine engine,
                             const FusedMoeSpec& spec) {
  for (const Plan& plan : configuration.plans) {
    if (plan.runner != facts_of(engine).runner) continue;
    const Result<FusedMoeSpec> own = moe_spec_of(plan.problem);
    // How tokens are routed, and what activations are rounded to, is not in a file's name.
    if (own.ok() && own->hidden == spec.hidden && own->top_k == spec.top_k &&
        own->held_experts() == spec.held_experts() && own->intermediate == spec.intermediate &&
        own->weights == spec.weights) {
      return &plan;
    }
  }
  return nullptr;
}

Result<std::vector<TableVerdict>> compare_with_plan(const TritonTable& table, const Plan& plan) {
  MOETUNE_ASSIGN_OR_RETURN(const std::optional<HostInfo> host, host_of(plan));
  std::vector<TableVerdict> verdicts;
  for (const Decision& decision : plan.decisions)
    verdicts.push_back(verdict_of(table, decision, host.value_or(HostInfo{})));
  return verdicts;
}

std::string summary_of(const std::vector<TableVerdict>& verdicts) {
  const auto same = std::count_if(verdicts.begin(), verdicts.end(), [](const TableVerdict& one) {
    return one.kind == VerdictKind::kSame;
  });
  std::string text = fmt::format("as tuned at {} of {} numbers of tokens", same, verdicts.size());
  if (const std::string slower = list_of(verdicts, VerdictKind::kSlower); !slower.empty())
    text += fmt::format("; measured slower than the default at {}", slower);
  if (const std::string better = list_of(verdicts, VerdictKind::kBetter); !better.empty())
    text += fmt::format("; the plan has another tactic, faster than the default, at {}", better);
  return text;
}

}  // namespace moetune::exchange

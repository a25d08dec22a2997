#include "exchange/plan_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/status_macros.h"
#include "exchange/host_info.h"
#include "ops/moe/moe_workbench.h"

namespace moetune::exchange {
namespace {

constexpr int64_t kOpenEnd = std::numeric_limits<int64_t>::max();

/// The same tactic for from <= tokens <= to.
struct Section {
  int64_t from = 0;
  int64_t to = 0;
  Tactic tactic;
};

/// Adds a section behind all others, joined with the last where nothing changes.
void append(std::vector<Section>& sections, Section next) {
  if (!sections.empty() && sections.back().tactic == next.tactic) {
    sections.back().to = next.to;
  } else {
    sections.push_back(std::move(next));
  }
}

Result<Tactic> only_tactic(const Candidate& candidate) {
  if (candidate.stages.size() == 1) return candidate.stages.front().tactic;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} has {} stages, where an engine's file has one", candidate.text(),
                           candidate.stages.size()),
               "the plan comes from another kernel"};
}

/// The part of the engine's default that holds from `from` on, up to `to` at most.
Status append_defaults(const HostInfo& host, int64_t from, int64_t to,
                       std::vector<Section>& sections) {
  for (size_t i = 0; i < host.defaults.size(); ++i) {
    const int64_t next = i + 1 < host.defaults.size() ? host.defaults[i + 1].from - 1 : kOpenEnd;
    const int64_t first = std::max(host.defaults[i].from, from);
    const int64_t last = std::min(next, to);
    if (first > last) continue;
    MOETUNE_ASSIGN_OR_RETURN(Tactic tactic, only_tactic(host.defaults[i].candidate));
    append(sections, {first, last, std::move(tactic)});
  }
  return {};
}

/// What runs from 1 to max_tokens by the plan, and above it as well as is known.
Result<std::vector<Section>> sections_of(const Plan& plan, const HostInfo& host) {
  std::vector<Section> sections;
  for (const Decision& decision : plan.decisions) {
    if (decision.is_default && !host.defaults.empty()) {
      MOETUNE_RETURN_IF_ERROR(append_defaults(host, decision.from, decision.to, sections));
    } else {
      MOETUNE_ASSIGN_OR_RETURN(Tactic tactic, only_tactic(decision.candidate));
      append(sections, {decision.from, decision.to, std::move(tactic)});
    }
  }
  // Nothing was measured above, so that the engine's default belongs there.
  MOETUNE_RETURN_IF_ERROR(append_defaults(host, plan.max_tokens + 1, kOpenEnd, sections));
  return sections;
}

TritonTable table_of(std::vector<Section> sections) {
  TritonTable table;
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& section = sections[i];
    table.entries.push_back({section.from, section.tactic});
    // The last one has no neighbour to be kept apart from.
    const bool has_next = i + 1 < sections.size();
    if (has_next && section.to > section.from)
      table.entries.push_back({section.to, section.tactic});
  }
  return table;
}

std::vector<std::string> notes_of(const Plan& plan, const HostInfo& host, const char* engine) {
  std::vector<std::string> notes;
  const auto is_default = [](const Decision& decision) { return decision.is_default; };
  const bool has_defaults = std::any_of(plan.decisions.begin(), plan.decisions.end(), is_default);
  if (host.defaults.empty() && has_defaults) {
    notes.push_back(fmt::format(
        "the plan does not say how {}'s default changes with the number of tokens: where the "
        "default stays, the file has what it was where it was measured",
        engine));
  }
  if (host.defaults.empty()) {
    notes.push_back(fmt::format(
        "above {} tokens, where nothing was measured, {} goes on with the file's last entry",
        plan.max_tokens, engine));
  } else {
    notes.push_back(fmt::format(
        "above {} tokens, where nothing was measured, the file has {}'s default as it is from {} "
        "tokens on",
        plan.max_tokens, engine, std::max(host.defaults.back().from, plan.max_tokens + 1)));
  }
  if (std::all_of(plan.decisions.begin(), plan.decisions.end(), is_default)) {
    notes.push_back(fmt::format(
        "nothing was faster than {}'s default by enough: the file holds that default, in place "
        "of any table that ships with {}",
        engine, engine));
  }
  return notes;
}

int64_t tuned_tokens(const Plan& plan) {
  int64_t tokens = 0;
  for (const Decision& decision : plan.decisions)
    if (!decision.is_default) tokens += decision.to - decision.from + 1;
  return tokens;
}

Status check_runner(const Plan& plan, const EngineFacts& facts) {
  const auto is_other = [&](const Decision& decision) {
    return decision.candidate.runner != facts.runner;
  };
  const auto other = std::find_if(plan.decisions.begin(), plan.decisions.end(), is_other);
  if (other == plan.decisions.end()) return plan.check_coverage();
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("{}: from {} tokens on {} runs, which is not {}'s kernel", plan.problem.key(),
                  other->from, other->candidate.runner, facts.title),
      fmt::format("tune {}'s own: `moetune tune MODEL --host {}`", facts.title, facts.name)};
}

}  // namespace

Result<ExportedTable> export_plan(const Plan& plan, const ExportOptions& options) {
  const EngineFacts& facts = facts_of(options.engine);
  MOETUNE_RETURN_IF_ERROR(check_runner(plan, facts));
  MOETUNE_ASSIGN_OR_RETURN(const std::optional<HostInfo> known, host_of(plan));
  const HostInfo host = known.value_or(HostInfo{});
  const std::string& device = options.device_name.empty() ? host.device_name : options.device_name;
  if (device.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the plan does not say what {} calls the device", facts.title),
                 "give --device-name, as `torch.cuda.get_device_name()` has it"};
  }
  const Version version =
      options.engine_version.known() ? options.engine_version : host.version(facts.name);
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec spec, moe_spec_of(plan.problem));
  ExportedTable exported;
  MOETUNE_ASSIGN_OR_RETURN(exported.name, table_name_of(spec, options.engine, device, version));
  MOETUNE_ASSIGN_OR_RETURN(std::vector<Section> sections, sections_of(plan, host));
  exported.table = table_of(std::move(sections));
  exported.problem = plan.problem.key();
  exported.max_tokens = plan.max_tokens;
  exported.tuned_tokens = tuned_tokens(plan);
  exported.notes = notes_of(plan, host, facts.title);
  const Version tuned_with = host.version("triton");
  exported.triton_version = options.triton_version.known() ? options.triton_version : tuned_with;
  if (tuned_with.known() && exported.triton_version != tuned_with) {
    exported.notes.push_back(fmt::format("it was tuned with Triton {}, and is to run with {}",
                                         tuned_with.text(), exported.triton_version.text()));
  }
  if (may_name_triton(options.engine, version))
    exported.table.triton_version =
        (tuned_with.known() ? tuned_with : exported.triton_version).text();
  return exported;
}

}  // namespace moetune::exchange

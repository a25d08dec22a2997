#include "moetune/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tuner/text.h"

namespace moetune {
namespace {

// What decides whether kernels run at all, as CPU and GPU backends call it.
constexpr std::array kInstructionSets = {"isa", "sm"};

// More than any call will have, and far enough from the largest integer for adding to it.
constexpr int64_t kMaxTokens = int64_t{1} << 40;

using Properties = std::map<std::string, std::string>;

std::string value_or_nothing(const Properties& properties, const std::string& name) {
  const auto found = properties.find(name);
  return found == properties.end() ? "nothing" : found->second;
}

std::vector<std::string> differences(const Properties& here, const Properties& there) {
  Properties names = here;
  names.insert(there.begin(), there.end());
  std::vector<std::string> texts;
  for (const auto& [name, unused] : names) {
    const std::string ours = value_or_nothing(here, name);
    const std::string theirs = value_or_nothing(there, name);
    if (ours != theirs) texts.push_back(fmt::format("{}: {} here, {} there", name, ours, theirs));
  }
  return texts;
}

Error not_covered(const Plan& plan, size_t index, std::string_view what) {
  return {ErrorCode::kParse,
          fmt::format("plan of {}: decisions[{}]: {}", plan.problem.key(), index, what),
          "a plan's intervals cover 1 to max_tokens in ascending order, without gap or overlap"};
}

bool key_less(const Plan& plan, const std::string& key) { return plan.problem.key() < key; }

}  // namespace

const char* to_string(Provenance provenance) {
  switch (provenance) {
    case Provenance::kTuned: return "tuned";
    case Provenance::kNearest: return "nearest";
    case Provenance::kStale: return "stale";
    case Provenance::kDefault: return "default";
  }
  return "default";
}

std::string DeviceProperties::key() const { return key_text(kind, identity); }

std::vector<std::string> DeviceProperties::differences(const DeviceProperties& other) const {
  if (kind != other.kind) return {fmt::format("kind: {} here, {} there", kind, other.kind)};
  return moetune::differences(identity, other.identity);
}

std::vector<std::string> DeviceProperties::toolchain_differences(
    const DeviceProperties& other) const {
  return moetune::differences(toolchain, other.toolchain);
}

bool DeviceProperties::is_sibling(const DeviceProperties& other) const {
  return kind == other.kind &&
         std::all_of(kInstructionSets.begin(), kInstructionSets.end(), [&](const char* set) {
           return value_or_nothing(identity, set) == value_or_nothing(other.identity, set);
         });
}

Status Plan::check_coverage() const {
  if (max_tokens < 1 || max_tokens > kMaxTokens) {
    return Error{ErrorCode::kParse,
                 fmt::format("plan of {}: max_tokens is {}", problem.key(), max_tokens),
                 fmt::format("it must be from 1 to {}", kMaxTokens)};
  }
  int64_t next = 1;
  for (size_t i = 0; i < decisions.size(); ++i) {
    const Decision& decision = decisions[i];
    if (decision.to < decision.from) {
      return not_covered(*this, i,
                         fmt::format("the interval {}..{} is empty", decision.from, decision.to));
    }
    if (decision.from > next) {
      return not_covered(*this, i, fmt::format("nothing covers {}..{}", next, decision.from - 1));
    }
    if (decision.from < next) {
      return not_covered(*this, i,
                         fmt::format("{}..{} begins at or before {}, which is covered already",
                                     decision.from, decision.to, next - 1));
    }
    if (decision.to > max_tokens) {
      return not_covered(
          *this, i,
          fmt::format("{}..{} ends above max_tokens, {}", decision.from, decision.to, max_tokens));
    }
    next = decision.to + 1;
  }
  if (next != max_tokens + 1) {
    return not_covered(*this, decisions.size(),
                       fmt::format("missing: {} decisions cover 1..{} of 1..{}", decisions.size(),
                                   next - 1, max_tokens));
  }
  return {};
}

const Plan* TunedConfiguration::find(const Problem& problem) const {
  for (const Plan& plan : plans) {
    if (plan.problem == problem) return &plan;
  }
  return nullptr;
}

void TunedConfiguration::put(Plan plan) {
  const std::string key = plan.problem.key();
  const auto place = std::lower_bound(plans.begin(), plans.end(), key, key_less);
  if (place != plans.end() && place->problem == plan.problem) {
    *place = std::move(plan);
  } else {
    plans.insert(place, std::move(plan));
  }
}

}  // namespace moetune

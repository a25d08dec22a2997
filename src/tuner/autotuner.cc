#include "moetune/autotuner.h"

#include <fmt/format.h>

#include <iterator>

#include "base/environment.h"
#include "base/status_macros.h"
#include "tuner/autotuner_state.h"
#include "tuner/pinned.h"
#include "tuner/tune.h"

namespace moetune {
namespace {

Layer layer_of(AutoTuner::Source source, bool sibling) {
  if (source == AutoTuner::Source::kUser) return sibling ? Layer::kUserSibling : Layer::kUser;
  return sibling ? Layer::kShippedSibling : Layer::kShipped;
}

bool is_siblings(Layer layer) {
  return layer == Layer::kUserSibling || layer == Layer::kShippedSibling;
}

}  // namespace

PlanSlot& AutoTuner::State::slot(const Problem& problem) {
  const std::lock_guard lock(plans);
  std::unique_ptr<PlanSlot>& slot = slots[problem.key()];
  if (slot == nullptr)
    slot = std::make_unique<PlanSlot>(problem, defaults_only, counters, mode.deterministic);
  return *slot;
}

void AutoTuner::State::count(const TuneReport& report) {
  tuned_problems.fetch_add(1, std::memory_order_relaxed);
  measurements.fetch_add(static_cast<uint64_t>(report.measurements), std::memory_order_relaxed);
  rejected_candidates.fetch_add(report.rejected.size(), std::memory_order_relaxed);
}

Lookup PlanHandle::find(int64_t tokens) const noexcept {
  return slot_ == nullptr ? kNothingKnown : slot_->find(tokens);
}

AutoTuner::AutoTuner(DeviceProperties device, AutoTunerOptions options)
    : state_(std::make_unique<State>(std::move(device), options)) {
  use_defaults(environment_switch(Variable::kDefault));
}

AutoTuner::~AutoTuner() = default;

const DeviceProperties& AutoTuner::device() const { return state_->device; }

Result<TuneReport> AutoTuner::tune(const TuneRequest& request) {
  const std::lock_guard tuning(state_->tuning);
  const autotune::Pause no_scope;
  TuneRequest complete = request;
  if (complete.store == nullptr) complete.store = state_->store.get();
  if (complete.device.kind.empty()) complete.device = state_->device;
  complete.deterministic = complete.deterministic || state_->mode.deterministic;
  {
    PlanSlot& asked = state_->slot(request.problem);
    const std::lock_guard lock(state_->plans);
    if (asked.is_pinned()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("tune: {} is pinned to a configuration", request.problem.key()),
                   "tune with another AutoTuner"};
    }
  }
  MOETUNE_ASSIGN_OR_RETURN(TuneReport report, tune_problem(complete));
  PlanSlot& slot = state_->slot(report.plan.problem);
  {
    const std::lock_guard lock(state_->plans);
    slot.tuned(report.plan);
  }
  state_->count(report);
  return report;
}

Result<std::vector<std::string>> AutoTuner::load(const TunedConfiguration& configuration,
                                                 Source source) {
  const std::lock_guard tuning(state_->tuning);
  const std::vector<std::string> differences = state_->device.differences(configuration.device);
  const bool sibling = !differences.empty();
  if (sibling && !state_->device.is_sibling(configuration.device)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the tuned configuration is for another device ({})",
                             fmt::join(differences, "; ")),
                 "tune on this device"};
  }
  std::vector<std::string> notes;
  if (sibling) {
    notes.push_back(
        fmt::format("tuned on a sibling device ({}): used where nothing better is known",
                    fmt::join(differences, "; ")));
  }
  for (const std::string& difference : state_->device.toolchain_differences(configuration.device)) {
    notes.push_back(
        fmt::format("tuned with another toolchain ({}): used all the same", difference));
  }
  for (const Plan& plan : configuration.plans) {
    PlanSlot& slot = state_->slot(plan.problem);
    const std::lock_guard lock(state_->plans);
    slot.load(layer_of(source, sibling), plan);
  }
  return notes;
}

std::vector<std::string> AutoTuner::validate(const Problem& problem,
                                             std::span<TunableRunner* const> runners) {
  PlanSlot& slot = state_->slot(problem);
  const std::lock_guard lock(state_->plans);
  return slot.validate(runners);
}

Status AutoTuner::pin(const TunedConfiguration& configuration, const Problem& problem,
                      std::span<TunableRunner* const> runners, int64_t max_tokens) {
  if (state_->defaults_only.load(std::memory_order_relaxed)) {
    return Error{ErrorCode::kInvalidArgument,
                 "a configuration cannot be pinned while tuning results are switched off",
                 "unset MOETUNE_DEFAULT, or do not ask for defaults only"};
  }
  const std::vector<std::string> mismatches =
      pin_mismatches(configuration, {.device = state_->device,
                                     .problem = problem,
                                     .runners = runners,
                                     .max_tokens = max_tokens,
                                     .deterministic = state_->mode.deterministic});
  if (!mismatches.empty()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the configuration cannot be pinned: {}", fmt::join(mismatches, "; ")),
                 "tune for this device, problem and these sizes, or do without pinning"};
  }
  Plan plan = *configuration.find(problem);
  (void)check_fit(plan, runners);  // Brings tactics into today's order.
  const std::lock_guard tuning(state_->tuning);
  PlanSlot& slot = state_->slot(problem);
  const std::lock_guard lock(state_->plans);
  slot.pin(std::move(plan));
  return {};
}

PlanHandle AutoTuner::handle(const Problem& problem) { return PlanHandle(&state_->slot(problem)); }

TunedConfiguration AutoTuner::configuration() const {
  TunedConfiguration configuration;
  configuration.device = state_->device;
  const std::lock_guard lock(state_->plans);
  for (const auto& [key, slot] : state_->slots) {
    const PlanSlot::InForce now = slot->in_force();
    if (now.plan != nullptr && !is_siblings(now.layer)) configuration.put(*now.plan);
  }
  return configuration;
}

void AutoTuner::use_defaults(bool on) {
  state_->defaults_only.store(on, std::memory_order_relaxed);
}

AutoTunerStatistics AutoTuner::statistics() const {
  AutoTunerStatistics statistics;
  statistics.lookups = state_->counters.total();
  statistics.tuned_problems = state_->tuned_problems.load(std::memory_order_relaxed);
  statistics.measurements = state_->measurements.load(std::memory_order_relaxed);
  statistics.rejected_candidates = state_->rejected_candidates.load(std::memory_order_relaxed);
  return statistics;
}

void AutoTuner::reset_statistics() {
  state_->counters.reset();
  state_->tuned_problems.store(0, std::memory_order_relaxed);
  state_->measurements.store(0, std::memory_order_relaxed);
  state_->rejected_candidates.store(0, std::memory_order_relaxed);
}

}  // namespace moetune

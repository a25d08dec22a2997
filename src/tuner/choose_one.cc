// choose_one(): known calls are answered from the table of choices without a lock or an allocation;
// everything else goes through learn(), which tunes where an autotune scope asks for it, and
// compiles.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "tuner/argument_bench.h"
#include "tuner/autotuner_state.h"
#include "tuner/bucket_runner.h"
#include "tuner/plan_edit.h"
#include "tuner/tune.h"

namespace moetune {
namespace {

thread_local const autotune* innermost_scope = nullptr;

Error invalid(std::string_view op, std::string message, std::string hint = {}) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", op, message), std::move(hint)};
}

Status check_call(const CallKey& key, const Tensors& arguments) {
  const int outputs = key.config().outputs;
  if (key.runners().empty()) return invalid(key.op(), "no runner", "give at least one");
  if (arguments.size() > CallKey::kMaxTensors) {
    return invalid(key.op(), fmt::format("{} arguments; at most {} are possible", arguments.size(),
                                         CallKey::kMaxTensors));
  }
  if (outputs < 1 || static_cast<size_t>(outputs) > arguments.size()) {
    return invalid(key.op(), fmt::format("{} outputs of {} arguments", outputs, arguments.size()),
                   "TuningConfig::outputs counts the arguments that are written");
  }
  for (size_t i = arguments.size() - static_cast<size_t>(outputs); i < arguments.size(); ++i) {
    const Shape& shape = arguments[i].shape;
    if (shape.empty() || shape.front() != arguments.back().shape.front()) {
      return invalid(key.op(), "the outputs differ in their outermost dimension",
                     "give them one, so that they can be compared row by row");
    }
  }
  for (const Tensor& tensor : arguments) {
    if (tensor.shape.size() > static_cast<size_t>(CallKey::kMaxRank)) {
      return invalid(key.op(), fmt::format("{} has {} dimensions; at most {} are possible",
                                           tensor.name, tensor.shape.size(), CallKey::kMaxRank));
    }
  }
  return {};
}

Result<Problem> problem_of(const CallKey& key, const Tensors& arguments) {
  std::vector<Shape> shapes;
  std::string types;
  for (const Tensor& tensor : arguments) {
    shapes.push_back(tensor.shape);
    types += fmt::format("{}{}", types.empty() ? "" : "+", to_string(tensor.type));
  }
  MOETUNE_ASSIGN_OR_RETURN(const auto profile, OptimizationProfile::of(key.config(), shapes));
  return Problem{std::string(key.op()), {{"shapes", profile.key()}, {"types", types}}};
}

Result<Buckets> buckets_of(const TuningConfig& config) {
  if (!config.dynamic.empty()) return config.dynamic.front().buckets;
  return Buckets::from({1});
}

// The plan that a new decision goes into: what is in force, unless it is another device's or has
// another layout; what does not fit any more counts as not measured.
Plan plan_to_extend(const PlanSlot& slot, const TuneReport& report, const Candidate& fallback) {
  Plan plan;
  plan.problem = slot.problem;
  plan.runner = report.plan.runner;
  plan.layout = report.plan.layout;
  const PlanSlot::InForce now = slot.in_force();
  const bool here =
      now.layer == Layer::kTunedHere || now.layer == Layer::kUser || now.layer == Layer::kShipped;
  if (now.plan == nullptr || !here || now.plan->layout != plan.layout) return plan;
  plan = *now.plan;
  for (size_t i = 0; i < plan.decisions.size(); ++i) {
    Decision& decision = plan.decisions[i];
    if ((*now.fits)[i].kind == Fit::Kind::kFits) continue;
    decision = unmeasured(fallback, decision.from, decision.to);
  }
  return plan;
}

}  // namespace

autotune::autotune(AutoTuner& tuner) : autotune(tuner, Options()) {}

autotune::autotune(AutoTuner& tuner, Options options)
    : tuner_(tuner), outer_(innermost_scope), options_(std::move(options)) {
  innermost_scope = this;
}

autotune::~autotune() { innermost_scope = outer_; }

autotune::Pause::Pause() : paused_(std::exchange(innermost_scope, nullptr)) {}

autotune::Pause::~Pause() { innermost_scope = paused_; }

const autotune::Options* autotune::options_for(const AutoTuner& tuner) {
  for (const autotune* scope = innermost_scope; scope != nullptr; scope = scope->outer_) {
    if (&scope->tuner_ == &tuner) return &scope->options_;
  }
  return nullptr;
}

Choice AutoTuner::State::answer(const ChoiceRange& range) {
  const bool off = defaults_only.load(std::memory_order_relaxed);
  const Choice choice = off ? range.fallback : range.chosen;
  counters.add(choice.provenance);
  return choice;
}

Result<Choice> AutoTuner::choose_one(std::string_view op, std::span<TunableRunner* const> runners,
                                     const TuningConfig& config, const Tensors& arguments,
                                     Device& device) {
  const CallKey key(op, runners, config, arguments);
  const autotune::Options* options = autotune::options_for(*this);
  if (options != nullptr &&
      (options->skip_ops.contains(op) || state_->defaults_only.load(std::memory_order_relaxed))) {
    options = nullptr;
  }
  if (const ChoiceEntry* entry = key.usable() ? state_->choices.find(key) : nullptr) {
    const ChoiceRange* range = entry->find(key.size());
    if (range != nullptr && (options == nullptr || range->settled)) return state_->answer(*range);
  }
  return state_->learn(key, arguments, options, device);
}

Result<Choice> AutoTuner::State::learn(const CallKey& key, const Tensors& arguments,
                                       const autotune::Options* options, Device& on) {
  MOETUNE_RETURN_IF_ERROR(check_call(key, arguments));
  MOETUNE_ASSIGN_OR_RETURN(const Problem problem, problem_of(key, arguments));
  MOETUNE_ASSIGN_OR_RETURN(const Buckets buckets, buckets_of(key.config()));
  PlanSlot& plan_slot = slot(problem);
  ChoiceEntry& entry = choices.find_or_add(key, buckets, plan_slot);
  const int64_t size = key.size();
  {
    const std::lock_guard lock(plans);
    if (plan_slot.needs_validation()) plan_slot.validate(key.runners());
  }
  TunableRunner& first = *key.runners().front();
  if (mode.deterministic && !first.is_deterministic(first.default_candidate(size))) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: the default of {} is not deterministic", key.op(), first.name()),
                 "put a runner whose default is in the first place"};
  }
  bool settled = entry.settled(size);
  if (!settled && options != nullptr) {
    // What cannot be tuned runs its default, and is not tried again.
    settled = true;
    const std::lock_guard lock(tuning);
    if (!entry.settled(size)) {
      if (auto decided = tune_call(key, entry, arguments, *options, on); decided.ok()) {
        const std::lock_guard plans_lock(plans);
        plan_slot.tuned(std::move(decided).value());
      }
    }
  }
  MOETUNE_ASSIGN_OR_RETURN(const ChoiceRange* range, entry.resolve(size, settled));
  return answer(*range);
}

Result<Plan> AutoTuner::State::tune_call(const CallKey& key, const ChoiceEntry& entry,
                                         const Tensors& arguments, const autotune::Options& options,
                                         Device& on) {
  const autotune::Pause no_scope;
  const int64_t size = key.size();
  const SizeRange sizes = sizes_of(entry.buckets(), entry.buckets().index(size));
  const SizeRange checked{sizes.from, std::max(sizes.to, size)};
  std::vector<BucketRunner> bucket_runners;
  std::vector<TunableRunner*> runners;
  bucket_runners.reserve(key.runners().size());
  for (TunableRunner* runner : key.runners()) {
    runners.push_back(&bucket_runners.emplace_back(*runner, checked));
  }
  MOETUNE_ASSIGN_OR_RETURN(
      auto bench, ArgumentBench::make(entry.slot().problem, arguments, key.config().outputs,
                                      *runners.front(), size, on));
  const auto executor = make_in_process_executor(on, bench, runners);
  MOETUNE_ASSIGN_OR_RETURN(Buckets measured_at, Buckets::from({size}));
  TuneRequest request{.problem = bench.problem(), .runners = runners, .buckets = measured_at};
  request.workload = "arguments of the call";
  request.budget_s = options.budget_s;
  request.policy = options.policy;
  request.now_s = options.now_s;
  request.policy.routing_samples = 1;  // The same arguments again would be no other sample.
  request.device = on.properties();
  request.bench = &bench;
  request.executor = executor.get();
  request.store = store.get();
  request.deterministic = mode.deterministic;
  MOETUNE_ASSIGN_OR_RETURN(TuneReport report, tune_problem(request));
  count(report);
  if (report.plan.decisions.empty()) {
    return Error{ErrorCode::kInternal, fmt::format("{}: tuning decided nothing", key.op())};
  }
  Decision decision = std::move(report.plan.decisions.back());
  decision.tokens = size;
  decision.from = sizes.from;
  decision.to = sizes.to;
  const Candidate fallback = runners.front()->default_candidate(size);
  const std::lock_guard lock(plans);
  return with_decision(plan_to_extend(entry.slot(), report, fallback), std::move(decision),
                       fallback);
}

}  // namespace moetune

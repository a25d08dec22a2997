// The Executor that runs candidates in this process.
//
// Memory: packed weights of the loaded layouts; per routing sample one set of arguments; and
// workspaces as large as the largest candidate so far asked for. All of it is allocated outside of
// timed sections and lives between guard bands, except for the weights, whose memory belongs to the
// runner.
//
// Cold weights: a timed sequence rotates over routing samples, and nothing is flushed in between.
// The weights are cold where one rotation touches more than the last-level cache holds. Who chooses
// the number of samples sees to that (tune_meter.cc), and small problems, whose weights fit into
// the cache as a whole, are rightly timed warm.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <new>
#include <utility>

#include "base/status_macros.h"
#include "moetune/measuring.h"
#include "tuner/in_process_memory.h"

namespace moetune {
namespace {

Error about(const Candidate& candidate, Error error) {
  error.message = fmt::format("{}: {}", candidate.text(), error.message);
  return error;
}

// Calls what a runner provides. Runners are others' code, so whatever they throw becomes an error.
template <typename Function>
auto call_runner(ErrorCode code, Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory, "the runner ran out of host memory"};
  } catch (const std::exception& e) {
    return Error{code, fmt::format("the runner threw: {}", e.what())};
  } catch (...) {
    return Error{code, "the runner threw something that is no std::exception"};
  }
}

class InProcessExecutor final : public Executor {
 public:
  InProcessExecutor(Device& device, Workbench& bench, std::vector<TunableRunner*> runners)
      : device_(device), bench_(bench), runners_(std::move(runners)) {}

  Status load(std::span<const WeightLayout> layouts, Scale scale) override;
  Status select(const Case& c, int samples) override;
  int prefetch(std::span<const Candidate> candidates, int64_t tokens) override;
  Result<CheckOutput> check(const Candidate& candidate, int sample,
                            std::span<const int64_t> rows) override;
  Result<std::vector<Sample>> measure(std::span<const Candidate* const> order, int stage,
                                      int calls) override;
  void unload() override;

 private:
  struct Compiled {
    std::string text;
    std::shared_ptr<Executable> executable;
    const PackedWeights* weights = nullptr;
    int64_t max_tokens = 0;
    size_t workspace_bytes = 0;
    double compile_seconds = 0;
    std::map<std::pair<int, int>, std::unique_ptr<TimedSequence>> sequences;  // by (stage, calls)
  };

  Result<TunableRunner*> runner_of(const std::string& name) const;
  // The candidate made ready for the selected case, with workspaces that it fits in.
  Result<Compiled*> ready(const Candidate& candidate, int stage);
  Status compile(const Candidate& candidate, Compiled& compiled);
  Status find_weights(const Candidate& candidate, TunableRunner& runner, Compiled& compiled) const;
  Status reserve_workspaces(size_t count, size_t bytes);
  Status run_all(const Compiled& compiled);
  Device::DeviceCall call_of(const Compiled& compiled, int sample, int stage) const;
  Result<TimedSequence*> sequence(Compiled& compiled, int stage, int calls);
  Result<double> sample_us(const Candidate& candidate, int stage, int calls);
  Result<CheckOutput> checked_run(const Candidate& candidate, int sample,
                                  std::span<const int64_t> rows);
  // What was written that must not be, now repaired, or empty.
  Result<std::string> damage(int sample);
  void forget_sequences();

  Device& device_;
  Workbench& bench_;
  std::vector<TunableRunner*> runners_;

  Scale scale_ = Scale::kFull;
  Scale packed_scale_ = Scale::kFull;
  std::vector<std::pair<WeightLayout, std::shared_ptr<PackedWeights>>> packed_;
  Case case_;
  std::vector<std::unique_ptr<GuardedArguments>> arguments_;  // one per routing sample
  std::vector<GuardedBuffer> workspaces_;  // the first for whole runs, one per sample for stages
  std::map<std::string, Compiled> compiled_;
  std::string intermediates_of_;  // whose intermediates of every sample are in the workspaces
};

Status InProcessExecutor::load(std::span<const WeightLayout> layouts, Scale scale) {
  const bool is_packed =
      std::equal(layouts.begin(), layouts.end(), packed_.begin(), packed_.end(),
                 [](const WeightLayout& wanted, const auto& held) { return wanted == held.first; });
  scale_ = scale;
  if (is_packed && (packed_scale_ == Scale::kFull || scale == Scale::kSubset)) {
    forget_sequences();
    arguments_.clear();
    return {};
  }
  unload();
  packed_scale_ = scale;
  for (const WeightLayout& layout : layouts) {
    MOETUNE_ASSIGN_OR_RETURN(TunableRunner * runner, runner_of(layout.runner));
    auto weights = call_runner(ErrorCode::kRun,
                               [&] { return runner->pack(layout.layout, bench_.weights(scale)); });
    if (!weights.ok()) {
      Error error = std::move(weights).error();
      error.message = fmt::format("packing weights in layout {} of {}: {}", layout.layout,
                                  layout.runner, error.message);
      return error;
    }
    packed_.emplace_back(layout, std::move(weights).value());
  }
  return {};
}

Status InProcessExecutor::select(const Case& c, int samples) {
  forget_sequences();
  arguments_.clear();
  case_ = c;
  for (int sample = 0; sample < std::max(1, samples); ++sample) {
    MOETUNE_ASSIGN_OR_RETURN(const Tensors host, bench_.arguments(c, scale_, sample));
    MOETUNE_ASSIGN_OR_RETURN(auto placed, GuardedArguments::place(device_, host, bench_.outputs()));
    arguments_.push_back(std::move(placed));
  }
  return {};
}

int InProcessExecutor::prefetch(std::span<const Candidate> candidates, int64_t /*tokens*/) {
  int first = -1;
  for (TunableRunner* runner : runners_) {
    std::vector<Candidate> own;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      if (candidate.runner != runner->name()) continue;
      const bool is_ready =
          compiled_.contains(fmt::format("{}@{}", candidate.text(), candidate.runner_version));
      if (!is_ready) own.push_back(candidate);
      const auto position = static_cast<int>(i);
      const bool may_be_first = first < 0 || position < first;
      if (may_be_first && (is_ready || runner->is_compiled(candidate))) first = position;
    }
    if (!own.empty()) runner->prefetch(own);
  }
  return first;
}

Result<CheckOutput> InProcessExecutor::check(const Candidate& candidate, int sample,
                                             std::span<const int64_t> rows) {
  if (sample < 0 || static_cast<size_t>(sample) >= arguments_.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("routing sample {} of {}", sample, arguments_.size()),
                 "select() a case with more samples"};
  }
  auto out = checked_run(candidate, sample, rows);
  if (!out.ok()) return about(candidate, std::move(out).error());
  return out;
}

Result<CheckOutput> InProcessExecutor::checked_run(const Candidate& candidate, int sample,
                                                   std::span<const int64_t> rows) {
  MOETUNE_ASSIGN_OR_RETURN(Compiled * compiled, ready(candidate, -1));
  const GuardedArguments& arguments = *arguments_[static_cast<size_t>(sample)];
  GuardedBuffer& workspace = workspaces_[0];
  intermediates_of_.clear();
  // The workspace serves many candidates; its guard belongs where this one's part ends.
  MOETUNE_RETURN_IF_ERROR(workspace.resize(device_, compiled->workspace_bytes));
  CheckOutput out;
  for (bool is_again : {false, true}) {
    MOETUNE_RETURN_IF_ERROR(arguments.poison_outputs(device_));
    // A candidate that counts on what another one left in the workspace must not pass.
    MOETUNE_RETURN_IF_ERROR(device_.fill(workspace.data(), 0xFF, workspace.bytes()));
    const Status ran = device_.run(call_of(*compiled, sample, -1));
    MOETUNE_ASSIGN_OR_RETURN(out.damage, damage(sample));
    MOETUNE_RETURN_IF_ERROR(ran);
    // Damage may be what an earlier candidate did while it was timed. It is repaired now, so that
    // what is found a second time is this one's.
    if (out.damage.empty() || is_again) break;
  }
  out.compile_seconds = std::exchange(compiled->compile_seconds, 0);
  MOETUNE_RETURN_IF_ERROR(arguments.fetch_rows(device_, rows, out));
  if (arguments_.size() == 1) intermediates_of_ = compiled->text;
  return out;
}

Result<std::vector<Sample>> InProcessExecutor::measure(std::span<const Candidate* const> order,
                                                       int stage, int calls) {
  std::vector<Sample> samples;
  samples.reserve(order.size());
  for (const Candidate* candidate : order) {
    auto us = sample_us(*candidate, stage, std::max(1, calls));
    if (!us.ok()) return about(*candidate, std::move(us).error());
    samples.push_back({us.value(), device_.state()});
  }
  return samples;
}

void InProcessExecutor::unload() {
  compiled_.clear();
  arguments_.clear();
  workspaces_.clear();
  packed_.clear();
  intermediates_of_.clear();
}

Result<TunableRunner*> InProcessExecutor::runner_of(const std::string& name) const {
  for (TunableRunner* runner : runners_) {
    if (runner->name() == name) return runner;
  }
  return Error{ErrorCode::kNotFound, fmt::format("no runner named {}", name),
               "give the executor the runners that are tuned"};
}

Result<InProcessExecutor::Compiled*> InProcessExecutor::ready(const Candidate& candidate,
                                                              int stage) {
  if (arguments_.empty()) return Error{ErrorCode::kInternal, "no case is selected"};
  Compiled& compiled = compiled_[fmt::format("{}@{}", candidate.text(), candidate.runner_version)];
  if (!compiled.executable || compiled.max_tokens < case_.tokens) {
    MOETUNE_RETURN_IF_ERROR(compile(candidate, compiled));
  }
  const size_t workspaces = stage < 0 ? 1 : arguments_.size();
  MOETUNE_RETURN_IF_ERROR(reserve_workspaces(workspaces, compiled.workspace_bytes));
  return &compiled;
}

Status InProcessExecutor::compile(const Candidate& candidate, Compiled& compiled) {
  MOETUNE_ASSIGN_OR_RETURN(TunableRunner * runner, runner_of(candidate.runner));
  MOETUNE_RETURN_IF_ERROR(find_weights(candidate, *runner, compiled));
  compiled.sequences.clear();
  const auto start = std::chrono::steady_clock::now();
  MOETUNE_ASSIGN_OR_RETURN(compiled.executable, call_runner(ErrorCode::kCompile, [&] {
                             return runner->compile(candidate, case_.tokens);
                           }));
  MOETUNE_ASSIGN_OR_RETURN(compiled.workspace_bytes,
                           call_runner(ErrorCode::kCompile, [&]() -> Result<size_t> {
                             return runner->workspace_bytes(candidate, case_.tokens);
                           }));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  compiled.text = candidate.text();
  compiled.max_tokens = case_.tokens;
  compiled.compile_seconds += took.count();
  return {};
}

Status InProcessExecutor::find_weights(const Candidate& candidate, TunableRunner& runner,
                                       Compiled& compiled) const {
  MOETUNE_ASSIGN_OR_RETURN(const std::string layout,
                           call_runner(ErrorCode::kCompile, [&]() -> Result<std::string> {
                             return runner.layout(candidate);
                           }));
  for (const auto& [loaded, weights] : packed_) {
    if (loaded.runner != candidate.runner || loaded.layout != layout) continue;
    compiled.weights = weights.get();
    return {};
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("layout {} is not loaded", layout)};
}

Status InProcessExecutor::reserve_workspaces(size_t count, size_t bytes) {
  const size_t held = workspaces_.empty() ? 0 : workspaces_[0].capacity();
  if (workspaces_.size() >= count && held >= bytes) return {};
  const size_t wanted_count = std::max(count, workspaces_.size());
  const size_t wanted_bytes = std::max(bytes, held);
  forget_sequences();  // They refer to the workspaces that go away.
  workspaces_.clear();
  while (workspaces_.size() < wanted_count) {
    auto workspace = GuardedBuffer::make(device_, wanted_bytes);
    if (!workspace.ok()) {
      workspaces_.clear();  // The next candidate may need less.
      return std::move(workspace).error();
    }
    workspaces_.push_back(std::move(workspace).value());
  }
  return {};
}

Device::DeviceCall InProcessExecutor::call_of(const Compiled& compiled, int sample,
                                              int stage) const {
  const GuardedBuffer& workspace = workspaces_[stage < 0 ? 0 : static_cast<size_t>(sample)];
  Call call;
  call.arguments = &arguments_[static_cast<size_t>(sample)]->tensors();
  call.weights = compiled.weights;
  call.workspace = workspace.data();
  call.workspace_bytes = compiled.workspace_bytes;
  return [executable = compiled.executable.get(), call, stage](void* stream) mutable {
    call.stream = stream;
    return call_runner(ErrorCode::kRun, [&] {
      return stage < 0 ? executable->run(call) : executable->run_stage(stage, call);
    });
  };
}

// A complete run on every routing sample, each in its own workspace: what timing a stage builds on.
Status InProcessExecutor::run_all(const Compiled& compiled) {
  if (intermediates_of_ == compiled.text) return {};
  intermediates_of_.clear();
  for (size_t sample = 0; sample < arguments_.size(); ++sample) {
    Call call{&arguments_[sample]->tensors(), compiled.weights, workspaces_[sample].data(),
              compiled.workspace_bytes, nullptr};
    MOETUNE_RETURN_IF_ERROR(device_.run([&](void* stream) {
      call.stream = stream;
      return call_runner(ErrorCode::kRun, [&] { return compiled.executable->run(call); });
    }));
  }
  intermediates_of_ = compiled.text;
  return {};
}

Result<TimedSequence*> InProcessExecutor::sequence(Compiled& compiled, int stage, int calls) {
  auto& recorded = compiled.sequences[{stage, calls}];
  if (!recorded) {
    std::vector<Device::DeviceCall> sequence;
    for (int i = 0; i < calls; ++i) {
      sequence.push_back(call_of(compiled, i % static_cast<int>(arguments_.size()), stage));
    }
    MOETUNE_ASSIGN_OR_RETURN(recorded, device_.record(std::move(sequence)));
  }
  return recorded.get();
}

Result<double> InProcessExecutor::sample_us(const Candidate& candidate, int stage, int calls) {
  MOETUNE_ASSIGN_OR_RETURN(Compiled * compiled, ready(candidate, stage));
  if (stage >= 0) MOETUNE_RETURN_IF_ERROR(run_all(*compiled));
  MOETUNE_ASSIGN_OR_RETURN(TimedSequence * timed, sequence(*compiled, stage, calls));
  if (stage < 0) intermediates_of_.clear();
  return timed->sample_us(1);
}

Result<std::string> InProcessExecutor::damage(int sample) {
  const GuardedArguments& arguments = *arguments_[static_cast<size_t>(sample)];
  MOETUNE_ASSIGN_OR_RETURN(std::string found, arguments.damage(device_));
  MOETUNE_ASSIGN_OR_RETURN(const std::string side, workspaces_[0].damage(device_));
  if (!side.empty()) found = fmt::format("wrote {} its workspace", side);
  if (found.empty()) return found;
  MOETUNE_ASSIGN_OR_RETURN(const Tensors host, bench_.arguments(case_, scale_, sample));
  MOETUNE_RETURN_IF_ERROR(arguments.restore_inputs(device_, host));
  return found;
}

void InProcessExecutor::forget_sequences() {
  for (auto& [text, compiled] : compiled_) compiled.sequences.clear();
  intermediates_of_.clear();
}

}  // namespace

std::unique_ptr<Executor> make_in_process_executor(Device& device, Workbench& bench,
                                                   std::vector<TunableRunner*> runners) {
  return std::make_unique<InProcessExecutor>(device, bench, std::move(runners));
}

}  // namespace moetune

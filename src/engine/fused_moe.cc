#include "moetune/fused_moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/status_macros.h"
#include "engine/backend.h"
#include "model/model_spec.h"
#include "ops/moe/format.h"
#include "ops/moe/moe_workbench.h"
#include "ops/moe/weights.h"

namespace moetune {

namespace {

constexpr int64_t kMostTokens = 1 << 20;
constexpr uintptr_t kWorkspaceAlignment = 256;

Status check_options(const FusedMoeSpec& spec, const FusedMoeOptions& options) {
  if (options.max_tokens < 1 || options.max_tokens > kMostTokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("max_tokens is {}, not 1 to {}", options.max_tokens, kMostTokens)};
  }
  const bool needs_bias = spec.router.selection_bias && !spec.given_routing;
  const auto wanted = needs_bias ? static_cast<size_t>(spec.global_experts) : 0;
  if (options.router_bias.size() != wanted) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("router_bias has {} values, this router takes {}",
                             options.router_bias.size(), wanted)};
  }
  if (spec.activations == ActivationFormat::kFp8) {
    MOETUNE_RETURN_IF_ERROR(check_activation_scales(options.activation_scales));
  } else if (!options.activation_scales.empty()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("activation_scales, and activations are {}", to_string(spec.activations)),
        "they go with fp8 activations"};
  }
  if (options.first_expert < 0 || options.first_expert + spec.experts > spec.global_experts) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("first_expert is {}: experts {} to {} of {} do not exist",
                             options.first_expert, options.first_expert,
                             options.first_expert + spec.experts - 1, spec.global_experts)};
  }
  return {};
}

Status check_mode(const FusedMoeOptions& options) {
  if (!options.pinned) return {};
  if (options.defaults_only) {
    return Error{ErrorCode::kInvalidArgument, "pinned and defaults_only contradict each other",
                 "set one of them"};
  }
  if (!options.config.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, "pinned, and no configuration is named",
               "set FusedMoeOptions::config"};
}

}  // namespace

struct FusedMoe::State {
  struct Compiled {
    Candidate candidate;
    std::shared_ptr<Executable> executable;
  };

  FusedMoeSpec spec;
  FusedMoeOptions options;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<TunableRunner>> runners;
  std::unique_ptr<AutoTuner> tuner;
  PlanHandle plan;
  std::vector<std::string> notes;

  std::string layout;
  std::shared_ptr<PackedWeights> weights;
  std::vector<Compiled> compiled;
  std::vector<uint16_t> default_of;  // [max_tokens + 1]: into `compiled`.
  std::vector<std::pair<const Decision*, uint16_t>> tuned;

  size_t workspace_bytes = 0;
  std::unique_ptr<DeviceBuffer> workspace;  // Null where it is the caller's.
  std::unique_ptr<DeviceBuffer> router_bias;
  std::unique_ptr<DeviceBuffer> activation_scales;
  std::unique_ptr<DeviceBuffer> first_expert;
  Tensors arguments;
  Call call;

  TunableRunner& runner() const { return *runners.front(); }

  std::vector<TunableRunner*> runner_pointers() const;
  Status set_plan(const Problem& problem);
  Status load_configuration();
  void choose_layout();
  Result<uint16_t> compile(const Candidate& candidate);
  Status compile_all();
  Status place_arguments();
  size_t index_for(int64_t tokens, Lookup* seen) const;
  Status run(int64_t tokens, void* output, void* stream);
};

std::vector<TunableRunner*> FusedMoe::State::runner_pointers() const {
  std::vector<TunableRunner*> pointers;
  for (const auto& one : runners) pointers.push_back(one.get());
  return pointers;
}

// What the mode asks for.
Status FusedMoe::State::set_plan(const Problem& problem) {
  const std::vector<TunableRunner*> pointers = runner_pointers();
  plan = tuner->handle(problem);
  if (options.defaults_only) {
    tuner->use_defaults(true);
    return {};
  }
  if (options.pinned) {
    MOETUNE_ASSIGN_OR_RETURN(const TunedConfiguration configuration,
                             TunedConfiguration::load(options.config));
    Status pinned = tuner->pin(configuration, problem, pointers, options.max_tokens);
    if (pinned.ok()) return pinned;
    Error error = std::move(pinned).error();
    error.message = fmt::format("{}: {}", options.config, error.message);
    return error;
  }
  MOETUNE_RETURN_IF_ERROR(load_configuration());
  for (std::string& note : tuner->validate(problem, pointers)) notes.push_back(std::move(note));
  return {};
}

Status FusedMoe::State::load_configuration() {
  const bool asked = !options.config.empty();
  const std::string path = asked ? options.config : get_config_path(tuner->device());
  Result<TunedConfiguration> configuration = TunedConfiguration::load(path);
  if (!configuration.ok()) {
    // A file that was named must be right; the usual one may be damaged without stopping a server.
    if (asked) return std::move(configuration).error();
    if (configuration.error().code != ErrorCode::kNotFound)
      notes.push_back(configuration.error().message);
    return {};
  }
  MOETUNE_ASSIGN_OR_RETURN(notes, tuner->load(*configuration, AutoTuner::Source::kUser));
  return {};
}

// The layout of the plan in force, else the default's.
void FusedMoe::State::choose_layout() {
  for (int64_t tokens = 1; tokens <= options.max_tokens; ++tokens) {
    if (const Lookup hit = plan.find(tokens); hit.decision != nullptr) {
      layout = runner().layout(hit.decision->candidate);
      return;
    }
  }
  layout = runner().layout(runner().default_candidate(1));
}

Result<uint16_t> FusedMoe::State::compile(const Candidate& candidate) {
  for (size_t i = 0; i < compiled.size(); ++i) {
    if (compiled[i].candidate == candidate) return static_cast<uint16_t>(i);
  }
  if (options.deterministic && !runner().is_deterministic(candidate)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the default is not deterministic: {}", candidate.text())};
  }
  MOETUNE_ASSIGN_OR_RETURN(auto executable, runner().compile(candidate, options.max_tokens));
  compiled.push_back({candidate, std::move(executable)});
  return static_cast<uint16_t>(compiled.size() - 1);
}

Status FusedMoe::State::compile_all() {
  default_of.assign(static_cast<size_t>(options.max_tokens) + 1, 0);
  for (int64_t tokens = 1; tokens <= options.max_tokens; ++tokens) {
    MOETUNE_ASSIGN_OR_RETURN(default_of[static_cast<size_t>(tokens)],
                             compile(runner().default_in_layout(layout, tokens)));
    const Decision* decision = plan.find(tokens).decision;
    if (decision == nullptr || (!tuned.empty() && tuned.back().first == decision)) continue;
    MOETUNE_ASSIGN_OR_RETURN(const uint16_t index, compile(decision->candidate));
    tuned.emplace_back(decision, index);
  }
  for (const Compiled& one : compiled) {
    workspace_bytes =
        std::max(workspace_bytes, runner().workspace_bytes(one.candidate, options.max_tokens));
  }
  if (options.caller_workspace) return {};
  MOETUNE_ASSIGN_OR_RETURN(workspace,
                           backend->device().allocate(std::max<size_t>(workspace_bytes, 1)));
  return {};
}

// The tensors of moe_spec.h in their order; run() fills in the rest.
Status FusedMoe::State::place_arguments() {
  Device& device = backend->device();
  arguments = {{"hidden", DataType::kBf16, {0, spec.hidden}, nullptr}};
  if (spec.given_routing) {
    arguments.push_back({"topk_ids", DataType::kI32, {0, spec.top_k}, nullptr});
    arguments.push_back({"topk_weights", DataType::kF32, {0, spec.top_k}, nullptr});
  } else {
    arguments.push_back({"logits", DataType::kF32, {0, spec.global_experts}, nullptr});
    if (spec.router.selection_bias) {
      const size_t bytes = options.router_bias.size() * sizeof(float);
      MOETUNE_ASSIGN_OR_RETURN(router_bias, device.allocate(bytes));
      MOETUNE_RETURN_IF_ERROR(
          device.upload(router_bias->data(), options.router_bias.data(), bytes));
      arguments.push_back(
          {"router_bias", DataType::kF32, {spec.global_experts}, router_bias->data()});
    }
  }
  if (spec.activations == ActivationFormat::kFp8) {
    constexpr size_t kBytes = 2 * sizeof(float);
    MOETUNE_ASSIGN_OR_RETURN(activation_scales, device.allocate(kBytes));
    MOETUNE_RETURN_IF_ERROR(
        device.upload(activation_scales->data(), options.activation_scales.data(), kBytes));
    arguments.push_back({"activation_scales", DataType::kF32, {2}, activation_scales->data()});
  }
  if (spec.ep > 1) {
    MOETUNE_ASSIGN_OR_RETURN(first_expert, device.allocate(sizeof(int32_t)));
    MOETUNE_RETURN_IF_ERROR(
        device.upload(first_expert->data(), &options.first_expert, sizeof(int32_t)));
    arguments.push_back({"first_expert", DataType::kI32, {1}, first_expert->data()});
  }
  arguments.push_back({"output", spec.output, {0, spec.hidden}, nullptr});
  call = {.arguments = &arguments,
          .weights = weights.get(),
          .workspace = workspace ? workspace->data() : nullptr,
          .workspace_bytes = workspace ? workspace->bytes() : 0,
          .stream = nullptr};
  return {};
}

size_t FusedMoe::State::index_for(int64_t tokens, Lookup* seen) const {
  *seen = plan.find(tokens);
  if (seen->decision != nullptr) {
    for (const auto& [decision, index] : tuned) {
      if (decision == seen->decision) return index;
    }
    // Published after create(): serving does not wait for a compiler.
    seen->provenance = Provenance::kDefault;
    seen->reason = "the plan was published after this layer was made";
  }
  return default_of[static_cast<size_t>(tokens)];
}

Status FusedMoe::State::run(int64_t tokens, void* output, void* stream) {
  if (tokens == 0) return {};
  if (call.workspace == nullptr) {
    return Error{ErrorCode::kInvalidArgument, "the layer has no workspace, which is the caller's",
                 "call set_workspace() first"};
  }
  arguments.front().shape[0] = tokens;
  arguments.back().shape[0] = tokens;
  arguments.back().data = output;
  call.stream = stream;
  Lookup seen;
  return compiled[index_for(tokens, &seen)].executable->run(call);
}

FusedMoe::FusedMoe() : state_(std::make_unique<State>()) {}
FusedMoe::~FusedMoe() {
  const auto kept = state_->backend ? state_->backend->keep_selected() : nullptr;
  state_.reset();
}

Result<std::unique_ptr<FusedMoe>> FusedMoe::create(const FusedMoeSpec& spec, WeightSource& weights,
                                                   const FusedMoeOptions& options) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  MOETUNE_RETURN_IF_ERROR(check_options(spec, options));
  MOETUNE_RETURN_IF_ERROR(check_mode(options));
  std::unique_ptr<FusedMoe> layer(new FusedMoe());
  State& state = *layer->state_;
  state.spec = spec;
  state.options = options;
  MOETUNE_ASSIGN_OR_RETURN(state.backend,
                           open_backend(options.device, {.threads = options.threads}));
  const auto kept = state.backend->keep_selected();
  MOETUNE_ASSIGN_OR_RETURN(state.runners, state.backend->make_runners(spec));
  state.tuner =
      std::make_unique<AutoTuner>(state.backend->device().properties(),
                                  AutoTunerOptions{.deterministic = options.deterministic});
  MOETUNE_RETURN_IF_ERROR(state.set_plan(moe_problem(spec)));
  state.choose_layout();
  MOETUNE_RETURN_IF_ERROR(state.compile_all());
  MOETUNE_ASSIGN_OR_RETURN(state.weights, state.runner().pack(state.layout, weights));
  MOETUNE_RETURN_IF_ERROR(state.place_arguments());
  return layer;
}

Status FusedMoe::run(int64_t tokens, const void* hidden, const float* logits, void* output,
                     void* stream) {
  State& state = *state_;
  if (state.spec.given_routing) {
    return Error{ErrorCode::kInvalidArgument, "this layer's routing is given", "call run_routed()"};
  }
  if (tokens < 0 || tokens > state.options.max_tokens) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} tokens; the layer was made for 0 to {}", tokens, state.options.max_tokens)};
  }
  state.arguments[0].data = const_cast<void*>(hidden);
  state.arguments[1].data = const_cast<float*>(logits);
  state.arguments[1].shape[0] = tokens;
  return state.run(tokens, output, stream);
}

Status FusedMoe::run_routed(int64_t tokens, const void* hidden, const int32_t* ids,
                            const float* weights, void* output, void* stream) {
  State& state = *state_;
  if (!state.spec.given_routing) {
    return Error{ErrorCode::kInvalidArgument, "this layer routes by its own router",
                 "call run() with logits"};
  }
  if (tokens < 0 || tokens > state.options.max_tokens) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} tokens; the layer was made for 0 to {}", tokens, state.options.max_tokens)};
  }
  state.arguments[0].data = const_cast<void*>(hidden);
  state.arguments[1].data = const_cast<int32_t*>(ids);
  state.arguments[2].data = const_cast<float*>(weights);
  state.arguments[1].shape[0] = tokens;
  state.arguments[2].shape[0] = tokens;
  return state.run(tokens, output, stream);
}

size_t FusedMoe::workspace_bytes() const { return state_->workspace_bytes; }

Status FusedMoe::set_workspace(void* memory, size_t bytes) {
  State& state = *state_;
  if (!state.options.caller_workspace) {
    return Error{ErrorCode::kInvalidArgument, "this layer has a workspace of its own",
                 "make it with caller_workspace"};
  }
  if (memory == nullptr || reinterpret_cast<uintptr_t>(memory) % kWorkspaceAlignment != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the workspace {} is not {}-byte aligned memory", fmt::ptr(memory),
                             kWorkspaceAlignment)};
  }
  if (bytes < state.workspace_bytes) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("a workspace of {} bytes; this layer needs {}", bytes, state.workspace_bytes),
        "workspace_bytes() says how many"};
  }
  state.call.workspace = memory;
  state.call.workspace_bytes = bytes;
  return {};
}

FusedMoe::Selected FusedMoe::selected(int64_t tokens) const {
  const int64_t within = std::clamp<int64_t>(tokens, 1, state_->options.max_tokens);
  Lookup seen;
  const size_t index = state_->index_for(within, &seen);
  return {&state_->compiled[index].candidate, seen.provenance, seen.reason};
}

const std::vector<std::string>& FusedMoe::notes() const { return state_->notes; }
const FusedMoeSpec& FusedMoe::spec() const { return state_->spec; }
AutoTuner& FusedMoe::tuner() { return *state_->tuner; }

Result<FusedMoeSpec> layer_spec(const std::string& model, const LayerOptions& options) {
  MOETUNE_ASSIGN_OR_RETURN(const ModelSpec loaded, load_model(model));
  LayerChoices choices;
  choices.shared_experts = options.shared_experts;
  if (!options.weights.empty()) {
    choices.weights = parse_weight_format(options.weights);
    if (!choices.weights) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'{}' is not a weight format", options.weights),
                   "bf16, fp16, fp8, fp8-block, nvfp4 and mxfp4 are"};
    }
  }
  if (!options.activations.empty()) {
    const auto activations = parse_activation_format(options.activations);
    if (!activations) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'{}' is not an activation format", options.activations),
                   "a16, fp8-block and fp8 are"};
    }
    choices.activations = *activations;
  }
  return layer_spec(loaded, choices, {.tp = options.tp, .ep = options.ep, .rank = options.rank});
}

Result<std::unique_ptr<WeightSource>> random_weights(const FusedMoeSpec& spec, uint64_t seed) {
  return make_random_weights(spec, DataKind::kRealistic, seed);
}

}  // namespace moetune

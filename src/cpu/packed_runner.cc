#include "cpu/packed_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "cpu/grouping.h"
#include "cpu/isa.h"
#include "cpu/layer.h"
#include "cpu/panel_weights.h"
#include "ops/moe/format.h"
#include "ops/moe/router.h"

namespace moetune::cpu {

namespace {

constexpr const char* kLayout = "panels32";
constexpr int kMostThreads = 1024;

class PackedPanels final : public PackedWeights {
 public:
  explicit PackedPanels(PanelWeights panels) : panels_(std::move(panels)) {}
  size_t bytes() const override { return static_cast<size_t>(PanelWeights::bytes(panels_.spec())); }
  PanelWeights& panels() { return panels_; }
  const PanelWeights& panels() const { return panels_; }

 private:
  PanelWeights panels_;
};

// Where the routing of a call lies in the workspace: before what the layer itself needs.
struct RoutingPlace {
  int64_t ids_bytes = 0;
  int64_t bytes = 0;

  RoutingPlace(const FusedMoeSpec& spec, int64_t tokens) {
    const auto whole_lines = [](int64_t n) { return (n + 63) / 64 * 64; };
    ids_bytes = whole_lines(tokens * spec.slots() * 4);
    bytes = 2 * ids_bytes;
  }
};

class PackedExecutable final : public Executable {
 public:
  PackedExecutable(FusedMoeSpec spec, LayerTactic tactic, std::shared_ptr<Machine> machine)
      : spec_(std::move(spec)), tactic_(tactic), machine_(std::move(machine)) {}

  Status run(const Call& call) override { return run_part(call, Part::kAll); }
  Status run_stage(int stage, const Call& call) override {
    return run_part(call, stage == 0 ? Part::kGemm1 : Part::kGemm2);
  }

 private:
  // Arguments in the order of moe_spec.h.
  Status run_part(const Call& call, Part part) {
    const Tensors& arguments = *call.arguments;
    LayerInputs inputs{.tokens = arguments[0].shape[0],
                       .hidden = arguments[0].as<uint16_t>(),
                       .output = arguments.back().data};
    if (inputs.tokens == 0) return {};
    if (spec_.activations == ActivationFormat::kFp8) {
      const size_t behind = spec_.ep > 1 ? 2 : 1;
      const auto* scales = arguments[arguments.size() - 1 - behind].as<float>();
      inputs.x_scale = scales[0];
      inputs.h_scale = scales[1];
    }
    const RoutingPlace place(spec_, inputs.tokens);
    auto* workspace = static_cast<uint8_t*>(call.workspace);
    MOETUNE_RETURN_IF_ERROR(route(arguments, place, workspace, part, inputs));
    const auto& panels = static_cast<const PackedPanels*>(call.weights)->panels();
    return run_layer(panels, inputs, tactic_, *machine_->kernels, *machine_->threads,
                     workspace + place.bytes, part);
  }

  Status route(const Tensors& arguments, const RoutingPlace& place, uint8_t* workspace, Part part,
               LayerInputs& inputs) const {
    const bool as_given = spec_.given_routing && spec_.ep == 1 && spec_.shared_experts == 0;
    if (as_given) {
      inputs.ids = arguments[1].as<int32_t>();
      inputs.weights = arguments[2].as<float>();
      return {};
    }
    auto* ids = reinterpret_cast<int32_t*>(workspace);
    auto* weights = reinterpret_cast<float*>(workspace + place.ids_bytes);
    inputs.ids = ids;
    inputs.weights = weights;
    if (part != Part::kAll) return {};  // What a complete run left.
    const float* bias =
        !spec_.given_routing && spec_.router.selection_bias ? arguments[2].as<float>() : nullptr;
    for (int64_t token = 0; token < inputs.tokens; ++token) {
      int32_t* own_ids = ids + token * spec_.slots();
      float* own_weights = weights + token * spec_.slots();
      if (spec_.given_routing) {
        std::copy_n(arguments[1].as<int32_t>() + token * spec_.top_k, spec_.top_k, own_ids);
        std::copy_n(arguments[2].as<float>() + token * spec_.top_k, spec_.top_k, own_weights);
        if (spec_.ep == 1) MOETUNE_RETURN_IF_ERROR(check_ids(own_ids, spec_.top_k, spec_.experts));
      } else {
        moetune::route(spec_, arguments[1].as<float>() + token * spec_.global_experts, bias,
                       own_ids, own_weights);
      }
      for (int i = 0; i < spec_.shared_experts; ++i) {
        own_ids[spec_.top_k + i] = static_cast<int32_t>(spec_.experts) + i;
        own_weights[spec_.top_k + i] = 1;
      }
    }
    if (spec_.ep > 1) {
      keep_local(ids, inputs.tokens * spec_.slots(),
                 arguments[arguments.size() - 2].as<int32_t>()[0]);
    }
    return {};
  }

  // Global ids to this rank's own; -1 for the others.
  void keep_local(int32_t* ids, int64_t count, int32_t first) const {
    for (int64_t i = 0; i < count; ++i) {
      const int32_t local = ids[i] - first;
      ids[i] = ids[i] >= 0 && local >= 0 && local < spec_.experts ? local : -1;
    }
  }

  FusedMoeSpec spec_;
  LayerTactic tactic_;
  std::shared_ptr<Machine> machine_;
};

class PackedRunner final : public TunableRunner {
 public:
  PackedRunner(FusedMoeSpec spec, std::shared_ptr<Machine> machine)
      : spec_(std::move(spec)), machine_(std::move(machine)) {
    const Space space = stage_space(*machine_->kernels, spec_.weights);
    schemes_ = {{"separate", {{"gemm1", space}, {"gemm2", space}}}};
  }

  std::string name() const override { return "cpu.packed"; }
  int version() const override { return 3; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  std::string layout(const Candidate&) const override { return kLayout; }

  Candidate default_candidate(int64_t tokens) const override {
    const LayerTactic tactic = default_tactic(spec_, tokens, *machine_->kernels, machine_->topology,
                                              machine_->threads->size());
    return {name(),
            version(),
            "separate",
            {{"gemm1", to_tactic(tactic.gemm1)}, {"gemm2", to_tactic(tactic.gemm2)}}};
  }

  /// A thread computes a sum alone, along k from its beginning; experts' rows are added in the
  /// order of a token's slots. Which thread takes what, and how many there are, changes no sum.
  bool is_deterministic(const Candidate&) const override { return true; }
  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const override {
    const Result<LayerTactic> tactic = layer_tactic(candidate);
    if (!tactic.ok()) return 0;
    return static_cast<size_t>(RoutingPlace(spec_, tokens).bytes +
                               cpu::workspace_bytes(spec_, tokens, *tactic, *machine_->kernels,
                                                    machine_->threads->size()));
  }

  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t /*max_tokens*/) override {
    MOETUNE_ASSIGN_OR_RETURN(const LayerTactic tactic, layer_tactic(candidate));
    MOETUNE_RETURN_IF_ERROR(validate(tactic, *machine_->kernels, spec_.weights));
    return std::shared_ptr<Executable>(std::make_shared<PackedExecutable>(spec_, tactic, machine_));
  }

  Result<std::shared_ptr<PackedWeights>> pack(const std::string& layout,
                                              WeightSource& source) override {
    MOETUNE_RETURN_IF_ERROR(check_layout(layout));
    MOETUNE_ASSIGN_OR_RETURN(PanelWeights panels, PanelWeights::allocate(spec_));
    for (int64_t expert = 0; expert < std::min(source.chunks(), spec_.held_experts()); ++expert) {
      MOETUNE_ASSIGN_OR_RETURN(const Tensors chunk, source.chunk(expert));
      MOETUNE_RETURN_IF_ERROR(panels.pack(expert, chunk, *machine_->threads));
    }
    return std::shared_ptr<PackedWeights>(std::make_shared<PackedPanels>(std::move(panels)));
  }

  Status unpack(const PackedWeights& weights, WeightSink& sink) const override {
    const PanelWeights& panels = static_cast<const PackedPanels&>(weights).panels();
    Tensors tensors = expert_tensors(spec_);
    std::vector<std::vector<uint32_t>> storage;
    for (Tensor& tensor : tensors)
      tensor.data = storage.emplace_back((tensor.bytes() + 3) / 4).data();
    for (int64_t expert = 0; expert < spec_.held_experts(); ++expert) {
      panels.unpack(expert, tensors);
      MOETUNE_RETURN_IF_ERROR(sink.chunk(expert, tensors));
    }
    return {};
  }

 private:
  static Status check_layout(const std::string& layout) {
    if (layout == kLayout) return {};
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("cpu.packed has no weight layout '{}'", layout),
                 fmt::format("it has '{}'", kLayout)};
  }

  Result<LayerTactic> layer_tactic(const Candidate& candidate) const {
    if (candidate.stages.size() != 2) {
      return Error{ErrorCode::kInvalidArgument,
                   candidate.text() + " does not have the stages gemm1 and gemm2"};
    }
    LayerTactic tactic;
    MOETUNE_ASSIGN_OR_RETURN(tactic.gemm1, to_stage(candidate.stages[0].tactic));
    MOETUNE_ASSIGN_OR_RETURN(tactic.gemm2, to_stage(candidate.stages[1].tactic));
    return tactic;
  }

  FusedMoeSpec spec_;
  std::shared_ptr<Machine> machine_;
  std::vector<Scheme> schemes_;
};

}  // namespace

Result<std::shared_ptr<Machine>> open_machine(int threads) {
  if (threads < 0 || threads > kMostThreads) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} CPU threads", threads),
                 fmt::format("give 1 to {}, or 0 for one per core", kMostThreads)};
  }
  auto machine = std::make_shared<Machine>();
  machine->topology = read_topology();
  MOETUNE_ASSIGN_OR_RETURN(const Isa isa, choose_isa());
  machine->kernels = &kernels(isa);
  const int count = threads == 0 ? machine->topology.default_threads() : threads;
  machine->threads = std::make_unique<ThreadPool>(machine->topology.placement(count));
  return machine;
}

Result<std::unique_ptr<TunableRunner>> make_packed_runner(const FusedMoeSpec& spec,
                                                          std::shared_ptr<Machine> machine) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  return std::unique_ptr<TunableRunner>(std::make_unique<PackedRunner>(spec, std::move(machine)));
}

Space stage_space(const KernelTable& table, WeightFormat format) {
  const FormatKernels& kernels = format_kernels(table, format);
  std::vector<ParameterValue> tiles;
  for (const int64_t tile : {1, 2, 3, 4, 5, 6, 8, 10, 12}) {
    if (tile <= table.max_tile) tiles.emplace_back(tile);
  }
  std::vector<ParameterValue> feeds = {std::string("direct")};
  if (kernels.stage != nullptr) feeds.emplace_back(std::string("staged"));
  const auto numbers = [](std::initializer_list<int64_t> values) {
    return std::vector<ParameterValue>(values.begin(), values.end());
  };
  std::vector<Parameter> parameters = {
      {"feed", feeds,
       "where weights are converted: in the tile's registers, or once per panel into a scratch"},
      {"token_tile", tiles, "tokens multiplied with a register-held piece of weights"},
      {"k_block", numbers({0, 128, 256, 512}),
       "values of k converted at a time; 0: none is, or all of k"},
      {"panels_per_task", numbers({1, 2, 4, 8, 16}),
       "panels of 32 weight rows that a thread takes at once"},
      {"prefetch_bytes", numbers({1024, 4096}), "how far ahead the weight stream is prefetched"},
  };
  const SpaceRule runs{"kernels", [&table, format](const Tactic& tactic, int64_t) -> std::string {
                         const Result<StageTactic> stage = to_stage(tactic);
                         if (!stage.ok()) return stage.error().message;
                         const Status valid = validate(*stage, table, format);
                         return valid.ok() ? std::string() : valid.error().message;
                       }};
  const SpaceRule sense{"use",
                        [most = table.max_tile](const Tactic& tactic, int64_t) -> std::string {
                          const bool staged = tactic.word("feed") == "staged";
                          if (!staged && tactic.number("k_block") != 0)
                            return "only converted weights are cut along k";
                          if (staged && 2 * tactic.number("token_tile") < most)
                            return "converting pays with many tokens, which fill large tiles";
                          return {};
                        }};
  return Space(std::move(parameters), {runs, sense});
}

Tactic to_tactic(const StageTactic& stage) {
  return Tactic({{"feed", std::string(stage.feed == Feed::kStaged ? "staged" : "direct")},
                 {"token_tile", int64_t{stage.token_tile}},
                 {"k_block", int64_t{stage.k_block}},
                 {"panels_per_task", int64_t{stage.panels_per_task}},
                 {"prefetch_bytes", int64_t{stage.prefetch_bytes}}});
}

Result<StageTactic> to_stage(const Tactic& tactic) {
  const auto missing = [&tactic](const char* name) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tactic {} has no usable '{}'", tactic.text(), name)};
  };
  StageTactic stage;
  const std::string_view feed = tactic.word("feed");
  if (feed != "direct" && feed != "staged") return missing("feed");
  stage.feed = feed == "staged" ? Feed::kStaged : Feed::kDirect;
  struct Number {
    const char* name;
    int* value;
  };
  for (const Number& number :
       {Number{"token_tile", &stage.token_tile}, Number{"k_block", &stage.k_block},
        Number{"panels_per_task", &stage.panels_per_task},
        Number{"prefetch_bytes", &stage.prefetch_bytes}}) {
    const int64_t found = tactic.number(number.name, -1);
    if (found < 0 || found > (1 << 24)) return missing(number.name);
    *number.value = static_cast<int>(found);
  }
  return stage;
}

}  // namespace moetune::cpu

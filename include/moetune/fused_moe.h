// One rank's fused-MoE layer, ready to serve: packed weights, compiled kernels, and the plan that
// says which runs when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moetune/autotuner.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune {

/// The layer of a Hugging Face model folder, a config.json, or a built-in preset ("qwen3-30b-a3b"):
/// one rank's share.
struct LayerOptions {
  std::string weights;  ///< "bf16", "nvfp4", ...; empty: what the model's config says, else bf16.
  std::string activations;  ///< "a16" (also where it is empty), "fp8-block", "fp8".
  int tp = 1;
  int ep = 1;
  int rank = 0;  ///< Its share; 0 <= rank < tp * ep.
  /// Takes the model's shared experts into the layer. Needs ep = 1, and shared experts of the
  /// routed ones' size, or of a multiple.
  bool shared_experts = false;
};
Result<FusedMoeSpec> layer_spec(const std::string& model, const LayerOptions& options = {});

/// Random weights of realistic size for a specification, one expert a chunk: for measuring and for
/// trying things out. A model's own: checkpoint.h; those that a program has in memory:
/// moe_weights.h.
Result<std::unique_ptr<WeightSource>> random_weights(const FusedMoeSpec& spec, uint64_t seed);

struct FusedMoeOptions {
  std::string device = "auto";  ///< "auto" (the first GPU, else CPU), "cpu", "cuda:0", ...
  int64_t max_tokens = 1024;    ///< Most tokens of one call; sizes the workspace.
  std::string config;  ///< A tuned configuration; empty: get_config_path() where there is one, else
                       ///< defaults.
  int threads = 0;     ///< CPU threads; 0: all this process may use.
  std::vector<float>
      router_bias;  ///< [global_experts], where the specification's router has a selection bias.
  std::vector<float> activation_scales;  ///< [2], with fp8 activations: of x and of h.
  int32_t first_expert = 0;              ///< Global id of this rank's expert 0, where ep > 1.

  /// The same bits on every run of the same inputs, on any number of threads: only kernels whose
  /// sums have a fixed order. What the configuration has otherwise is not used (notes() says so)
  /// and the default runs there. Other numbers of tokens may run other kernels, whose sums are
  /// ordered in another way.
  bool deterministic = false;
  /// Exactly what `config`, which must be named, says, and nothing else: create() fails, naming
  /// each mismatch, where the file is not for this device and layer, does not cover 1..max_tokens,
  /// or names kernels that this version has not; never a silent default.
  bool pinned = false;
  /// Defaults only: no configuration is read and no tuning result is used. MOETUNE_DEFAULT=1 does
  /// the same to every layer of a process, and tuner().use_defaults() to a layer that is there.
  bool defaults_only = false;

  /// The workspace is the caller's, so that several layers can share one: create() allocates none,
  /// and set_workspace() comes before the first run().
  bool caller_workspace = false;
};

/// Owns device, packed weights and, unless the caller does, the workspace. One thread at a time.
class FusedMoe {
 public:
  /// Packs `weights` in the plan's layout and compiles every tactic the plan can reach, the
  /// defaults included, so that no run() waits for a compiler. Weights are read one chunk at a
  /// time: "w13" and "w2" as moe_spec.h defines them (and their scales, docs/operator.md).
  static Result<std::unique_ptr<FusedMoe>> create(const FusedMoeSpec& spec, WeightSource& weights,
                                                  const FusedMoeOptions& options = {});
  ~FusedMoe();

  /// hidden [tokens, hidden] bf16, logits [tokens, global_experts] f32, output [tokens, hidden] in
  /// the specification's output type; all on the layer's device, where that is a GPU hidden at a
  /// multiple of 16 bytes and output at one of 8. Neither allocates nor synchronises.
  /// 0 <= tokens <= max_tokens.
  Status run(int64_t tokens, const void* hidden, const float* logits, void* output,
             void* stream = nullptr);
  /// For specifications with given_routing: ids [tokens, top_k] i32 (-1: skipped) and weights
  /// [tokens, top_k] f32.
  Status run_routed(int64_t tokens, const void* hidden, const int32_t* ids, const float* weights,
                    void* output, void* stream = nullptr);

  /// Bytes of device memory that run() works in, whoever owns them; fixed by create().
  size_t workspace_bytes() const;
  /// With FusedMoeOptions::caller_workspace: works in this memory from now on, which is on the
  /// layer's device, 256-byte aligned, of at least workspace_bytes(), and stays until it is
  /// replaced or the layer gone. Its content does not matter. Layers may share it as long as their
  /// runs do not overlap: on a GPU, those of one stream do not. A captured graph keeps the memory
  /// that it was captured with. kInvalidArgument where it does not fit, and nothing is changed.
  Status set_workspace(void* memory, size_t bytes);

  /// What would run for so many tokens, and why.
  struct Selected {
    const Candidate* candidate;
    Provenance provenance;
    const char* reason;
  };
  Selected selected(int64_t tokens) const;
  /// Decisions of the configuration that could not be used, each with its reason.
  const std::vector<std::string>& notes() const;
  const FusedMoeSpec& spec() const;
  AutoTuner& tuner();

 private:
  FusedMoe();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moetune

// What a model's MoE layers look like, read from a Hugging Face config.json or known by name.
//
// Families write the same facts under different names; this folder knows those names and nobody
// else does. A model says what the checkpoint holds; layer_spec() turns it into the operator that
// one rank runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune {

/// The MoE layers of one model. All of its MoE layers are alike; `dense_first` and `layers` are for
/// reports.
struct ModelSpec {
  std::string name;    ///< The preset's name, or the name of the folder that holds config.json.
  std::string origin;  ///< Path of the config.json, or "preset".
  std::string family;  ///< `model_type` as Hugging Face writes it.

  int64_t hidden = 0;
  int64_t intermediate = 0;  ///< Rows of gate (and of up) of one routed expert.
  int64_t experts = 0;       ///< Routed experts of a layer.
  int top_k = 0;
  Activation activation = Activation::kSwiGlu;
  RouterSpec router;
  bool bias = false;  ///< Biases on both GEMMs.

  int64_t layers = 0;      ///< Decoder layers, dense ones counted; 0 where the config does not say.
  int64_t moe_layers = 0;  ///< Of those, the ones with routed experts.
  int64_t dense_first = 0;          ///< Dense layers before the first one with experts.
  int64_t shared_experts = 0;       ///< Experts that every token visits.
  int64_t shared_intermediate = 0;  ///< Rows of gate of all shared experts together.
  bool shared_gate = false;         ///< Their output is scaled by a gate of its own.

  /// Format of the checkpoint's experts; empty where moetune has no such format.
  std::optional<WeightFormat> weights;
  /// The checkpoint's own words for it: "modelopt NVFP4", "awq", "bfloat16", ...
  std::string weights_text;
  /// For people: what was assumed where the config does not say.
  std::vector<std::string> notes;
};

/// How a model is spread over ranks. Rank r has tensor-parallel position r mod tp and
/// expert-parallel position r / tp.
struct ParallelLayout {
  int tp = 1;
  int ep = 1;
  int rank = 0;
};

/// What neither the model nor the layout decides.
struct LayerChoices {
  std::optional<WeightFormat> weights;  ///< Empty: what the checkpoint holds.
  ActivationFormat activations = ActivationFormat::kA16;
  /// Takes shared experts into the operator, as experts that every token visits; otherwise they
  /// are a layer of their own.
  bool shared_experts = false;
};

/// A preset's name, a config.json, or a folder with one (and perhaps hf_quant_config.json beside
/// it). A preset's name wins; write ./NAME for a folder of the same name.
/// kNotFound (with the preset that is spelled most like it), kIo, kParse (not a config.json, or a
/// field in it that makes no sense), kInvalidArgument (not an MoE model) or kUnsupported (a router
/// or activation that moetune does not have yet).
Result<ModelSpec> load_model(const std::string& path_or_preset);

/// The same from text. `quantisation` is the content of hf_quant_config.json, or empty. `origin` is
/// named in messages.
Result<ModelSpec> parse_model(std::string_view config, std::string_view quantisation,
                              const std::string& origin);

/// Presets in alphabetical order, and one of them by name (nullptr where there is none).
std::vector<std::string> preset_names();
const ModelSpec* find_preset(std::string_view name);

/// Where part `index` of `parts` of `total` begins, in whole blocks as even as can be, the first
/// ones larger. What does not fill a block goes with the last; `index` may be `parts`.
int64_t first_of_share(int64_t total, int64_t block, int64_t parts, int64_t index);

/// What a rank holds of a layer: the intermediate rows of gate and up (the columns of down) from
/// `first_row` on, of the experts from `first_expert` on.
struct RankShare {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_expert = 0;
  int64_t experts = 0;
};

/// kInvalidArgument for a layout that leaves a rank without work.
Result<RankShare> rank_share(const ModelSpec& model, WeightFormat weights,
                             const ParallelLayout& layout);

/// One rank's share of one MoE layer.
/// TP gives each rank a run of whole format blocks (16 values for nvfp4, 32 for mxfp4, 128 for
/// fp8-block, 8 for the others: what kernels load at once), so ranks may differ by one block; EP
/// gives each rank a run of experts that may differ by one. kInvalidArgument for a layout that
/// leaves a rank without work, kUnsupported where the checkpoint's format is not one of ours.
/// Shared experts that are as large as some number of routed ones become so many experts of the
/// operator; kUnsupported where they are not, where they have a gate, and with EP;
/// kInvalidArgument where the model has none.
Result<FusedMoeSpec> layer_spec(const ModelSpec& model, const LayerChoices& choices,
                                const ParallelLayout& layout);
Result<FusedMoeSpec> layer_spec(const ModelSpec& model, std::optional<WeightFormat> weights,
                                const ParallelLayout& layout);

}  // namespace moetune

// config.json to ModelSpec.
#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "model/family.h"
#include "model/fields.h"
#include "model/model_spec.h"
#include "model/quantisation.h"

namespace moetune {
namespace {

using model::Fields;

constexpr int64_t kMaxLayers = 1000;
// Quantisers may list every expert of every layer.
constexpr size_t kMaxMembers = 1 << 16;

const Fields::Names kExpertCount = {"num_experts", "n_routed_experts", "num_local_experts"};

/// Multimodal models describe their language model in an object of its own.
Result<Fields> language_model(const Fields& outer) {
  if (outer.has(kExpertCount)) return outer;
  for (std::string_view name : {"text_config", "language_config", "llm_config"}) {
    MOETUNE_ASSIGN_OR_RETURN(Fields inner, outer.object_or_empty(name));
    if (inner.has(kExpertCount)) return inner;
  }
  MOETUNE_ASSIGN_OR_RETURN(const std::string type, outer.text_or({"model_type"}, "none given"));
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: not a Mixture-of-Experts model (model_type: {}): no field {}",
                           outer.where(), type.substr(0, 40), model::one_of(kExpertCount)),
               "name a model that has MoE layers, or a preset"};
}

Status read_sizes(const Fields& config, const model::Family& family, ModelSpec& spec) {
  MOETUNE_ASSIGN_OR_RETURN(spec.hidden, config.integer({"hidden_size"}, 1, kMaxMoeDimension));
  MOETUNE_ASSIGN_OR_RETURN(spec.experts, config.integer(kExpertCount, 1, kMaxMoeExperts));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t top_k,
                           config.integer({"num_experts_per_tok", "experts_per_token"}, 1,
                                          std::min<int64_t>(spec.experts, kMaxMoeTopK)));
  spec.top_k = static_cast<int>(top_k);

  const bool unknown = family.routing == model::Routing::kByFields;
  const bool own_field =
      family.own_size_field && (!unknown || config.has({"moe_intermediate_size"}));
  if (own_field) {
    MOETUNE_ASSIGN_OR_RETURN(spec.intermediate,
                             config.integer({"moe_intermediate_size"}, 1, kMaxMoeDimension));
  } else {
    MOETUNE_ASSIGN_OR_RETURN(spec.intermediate,
                             config.integer({"intermediate_size"}, 1, kMaxMoeDimension));
  }
  if (unknown) {
    spec.notes.push_back(
        fmt::format("model_type {} is not known: the expert size is {}, and the router follows the "
                    "config's fields",
                    spec.family.empty() ? "(none)" : spec.family,
                    own_field ? "moe_intermediate_size" : "intermediate_size"));
  }
  return {};
}

Status read_shared_experts(const Fields& config, ModelSpec& spec) {
  MOETUNE_ASSIGN_OR_RETURN(
      spec.shared_experts,
      config.integer_or({"n_shared_experts", "num_shared_experts"}, 0, kMaxMoeExperts, 0));
  MOETUNE_ASSIGN_OR_RETURN(
      spec.shared_intermediate,
      config.integer_or({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                         "shared_intermediate_size"},
                        0, kMaxMoeDimension, spec.shared_experts * spec.intermediate));
  if (spec.shared_intermediate > 0) spec.shared_experts = std::max<int64_t>(spec.shared_experts, 1);
  return {};
}

/// moe_layer_freq: every how many layers there is one with experts, or a 0 or 1 per layer.
Result<bool> is_chosen_by_frequency(const Fields& config, int64_t layer) {
  const Json* value = config.find_value({"moe_layer_freq"});
  if (value != nullptr && value->is_array()) {
    const auto position = static_cast<size_t>(layer);
    return position < value->size() && (*value)[position] == 1;
  }
  MOETUNE_ASSIGN_OR_RETURN(const int64_t every,
                           config.integer_or({"moe_layer_freq"}, 1, kMaxLayers, 1));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t step,
                           config.integer_or({"decoder_sparse_step"}, 1, kMaxLayers, 1));
  return layer % every == 0 && (layer + 1) % step == 0;
}

/// Numbers of the layers with experts, as far as the config tells.
Result<std::vector<int64_t>> moe_layers(const Fields& config, int64_t layers) {
  MOETUNE_ASSIGN_OR_RETURN(const int64_t first,
                           config.integer_or({"first_k_dense_replace"}, 0, kMaxLayers, 0));
  MOETUNE_ASSIGN_OR_RETURN(const std::string pattern,
                           config.text_or({"hybrid_override_pattern"}, ""));
  const Json* dense = config.find_value({"mlp_only_layers"});
  std::vector<int64_t> result;
  for (int64_t layer = first; layer < layers; ++layer) {
    MOETUNE_ASSIGN_OR_RETURN(const bool chosen, is_chosen_by_frequency(config, layer));
    const bool listed_dense = dense != nullptr && dense->is_array() &&
                              std::find(dense->begin(), dense->end(), Json(layer)) != dense->end();
    const auto position = static_cast<size_t>(layer);
    const bool other_kind =
        !pattern.empty() && (position >= pattern.size() || pattern[position] != 'E');
    if (chosen && !listed_dense && !other_kind) result.push_back(layer);
  }
  return result;
}

Result<ModelSpec> read_model(const Fields& outer, const Fields& quantisation,
                             const std::string& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const Fields config, language_model(outer));
  ModelSpec spec;
  spec.origin = origin;
  MOETUNE_ASSIGN_OR_RETURN(spec.family, config.text_or({"model_type"}, ""));
  const model::Family& family = model::find_family(spec.family);
  MOETUNE_RETURN_IF_ERROR(read_sizes(config, family, spec));
  MOETUNE_RETURN_IF_ERROR(read_shared_experts(config, spec));
  MOETUNE_ASSIGN_OR_RETURN(spec.router, model::read_router(family, config, spec.experts));
  MOETUNE_ASSIGN_OR_RETURN(spec.activation, model::read_activation(family, config));
  spec.bias = family.model_type == "gpt_oss";
  spec.shared_gate = family.shared_gate && spec.shared_intermediate > 0;

  MOETUNE_ASSIGN_OR_RETURN(
      spec.layers, config.integer_or({"num_hidden_layers", "num_layers"}, 1, kMaxLayers, 0));
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<int64_t> with_experts,
                           moe_layers(config, spec.layers));
  if (spec.layers > 0 && with_experts.empty()) {
    return Error{
        ErrorCode::kParse,
        fmt::format("{}: none of its {} layers has experts", config.where(), spec.layers),
        "look at first_k_dense_replace, moe_layer_freq, decoder_sparse_step and mlp_only_layers"};
  }
  spec.moe_layers = static_cast<int64_t>(with_experts.size());
  spec.dense_first = with_experts.empty() ? 0 : with_experts.front();

  MOETUNE_ASSIGN_OR_RETURN(model::StoredWeights stored,
                           model::stored_weights(config, outer, quantisation, with_experts));
  spec.weights = stored.format;
  spec.weights_text = std::move(stored.text);
  spec.notes.insert(spec.notes.end(), stored.notes.begin(), stored.notes.end());
  return spec;
}

Result<Json> parse_object(std::string_view text, const std::string& origin) {
  MOETUNE_ASSIGN_OR_RETURN(Json value, parse_json(text, origin, {.max_members = kMaxMembers}));
  if (value.is_object()) return value;
  return Error{ErrorCode::kParse,
               fmt::format("{}: holds {}, not an object", origin, json_kind(value)),
               "is it the config.json that came with the model, complete?"};
}

}  // namespace

Result<ModelSpec> parse_model(std::string_view config, std::string_view quantisation,
                              const std::string& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const Json object, parse_object(config, origin));
  Json quantisation_object = Json::object();
  if (!quantisation.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(
        quantisation_object,
        parse_object(quantisation, origin + ": hf_quant_config.json beside it"));
  }
  return read_model(Fields(object, origin),
                    Fields(quantisation_object, origin + ": hf_quant_config.json beside it"),
                    origin);
}

}  // namespace moetune

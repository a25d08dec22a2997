// Layers: made, described, given a workspace, freed. layer_run.cc runs them.
#include "capi/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/spec.h"
#include "capi/weights.h"
#include "moetune/checkpoint.h"

namespace moetune::capi {

namespace {

moetune_layer_options default_layer_options() {
  const FusedMoeOptions defaults;
  moetune_layer_options options = {};
  options.max_tokens = defaults.max_tokens;
  options.threads = defaults.threads;
  options.first_expert = defaults.first_expert;
  return options;
}

Result<FusedMoeOptions> to_options(const moetune_layer_options* given, const FusedMoeSpec& spec) {
  moetune_layer_options from = default_layer_options();
  if (given != nullptr) {
    MOETUNE_ASSIGN_OR_RETURN(from, read_struct(given, from, "moetune_layer_options"));
  }
  FusedMoeOptions options;
  if (from.device != nullptr) options.device = from.device;
  if (from.config != nullptr) options.config = from.config;
  options.max_tokens = from.max_tokens;
  options.threads = from.threads;
  options.first_expert = from.first_expert;
  if (from.router_bias != nullptr)
    options.router_bias.assign(from.router_bias, from.router_bias + spec.global_experts);
  if (from.activation_scales != nullptr)
    options.activation_scales.assign(from.activation_scales, from.activation_scales + 2);
  MOETUNE_ASSIGN_OR_RETURN(options.deterministic, to_bool(from.deterministic, "deterministic"));
  MOETUNE_ASSIGN_OR_RETURN(options.pinned, to_bool(from.pinned, "pinned"));
  MOETUNE_ASSIGN_OR_RETURN(options.defaults_only, to_bool(from.defaults_only, "defaults_only"));
  MOETUNE_ASSIGN_OR_RETURN(options.caller_workspace,
                           to_bool(from.caller_workspace, "caller_workspace"));
  return options;
}

// The N of "cuda:N"; "auto" and "cuda" are the first GPU.
int32_t ordinal_of(std::string_view device) {
  int32_t ordinal = 0;
  const size_t colon = device.find(':');
  if (colon != std::string_view::npos)
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), ordinal);
  return ordinal;
}

Status make_layer(const FusedMoeSpec& spec, WeightSource& weights, const FusedMoeOptions& options,
                  moetune_layer** out) {
  MOETUNE_RETURN_IF_ERROR(need(out, "layer"));
  auto layer = std::make_unique<moetune_layer>();
  MOETUNE_ASSIGN_OR_RETURN(layer->moe, FusedMoe::create(spec, weights, options));
  const DeviceProperties& device = layer->moe->tuner().device();
  layer->device_key = device.key();
  layer->is_host = device.kind == "cpu";
  layer->ordinal = ordinal_of(options.device);
  *out = layer.release();
  return {};
}

template <typename Weights>
Status create_from(const moetune_spec* spec, const Weights* weights,
                   const moetune_layer_options* options, moetune_layer** out) {
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec read, to_spec(spec));
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeOptions chosen, to_options(options, read));
  MOETUNE_ASSIGN_OR_RETURN(const auto source, source_of(read, weights));
  return make_layer(read, *source, chosen, out);
}

Status create_from_checkpoint(const moetune_spec* spec, const char* model, int64_t index,
                              int32_t rank, const moetune_layer_options* options,
                              moetune_layer** out) {
  MOETUNE_RETURN_IF_ERROR(need(model, "model"));
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec read, to_spec(spec));
  MOETUNE_ASSIGN_OR_RETURN(FusedMoeOptions chosen, to_options(options, read));
  MOETUNE_ASSIGN_OR_RETURN(const auto source, checkpoint_weights(model, index, read, rank));
  chosen.first_expert = first_expert(read, rank);
  if (read.router.selection_bias && !read.given_routing && chosen.router_bias.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(RouterWeights router, checkpoint_router(model, index));
    chosen.router_bias = std::move(router.selection_bias);
  }
  return make_layer(read, *source, chosen, out);
}

Status select_into(moetune_layer* layer, int64_t tokens, moetune_selected* out) {
  MOETUNE_RETURN_IF_ERROR(need(layer, "layer"));
  const FusedMoe::Selected selected = layer->moe->selected(tokens);
  std::string& text = layer->candidate_texts[selected.candidate];
  if (text.empty()) text = selected.candidate->text();
  moetune_selected result = {};
  result.provenance = static_cast<int32_t>(selected.provenance);
  result.provenance_name = to_string(selected.provenance);
  result.candidate = text.c_str();
  result.reason = selected.reason;
  return write_struct(out, result, "moetune_selected");
}

Status give_workspace(moetune_layer* layer, void* workspace, size_t bytes) {
  MOETUNE_RETURN_IF_ERROR(need(layer, "layer"));
  return layer->moe->set_workspace(workspace, bytes);
}

Status switch_defaults(moetune_layer* layer, int32_t on) {
  MOETUNE_RETURN_IF_ERROR(need(layer, "layer"));
  MOETUNE_ASSIGN_OR_RETURN(const bool is_on, to_bool(on, "on"));
  layer->moe->tuner().use_defaults(is_on);
  return {};
}

static_assert(static_cast<int>(Provenance::kNearest) == MOETUNE_PROVENANCE_NEAREST);
static_assert(static_cast<int>(Provenance::kStale) == MOETUNE_PROVENANCE_STALE);
static_assert(static_cast<int>(Provenance::kDefault) == MOETUNE_PROVENANCE_DEFAULT);

}  // namespace

}  // namespace moetune::capi

using moetune::capi::guarded;

moetune_status moetune_layer_options_init(moetune_layer_options* options, size_t struct_size) {
  return guarded([&] {
    return moetune::capi::write_struct(options, struct_size, moetune::capi::default_layer_options(),
                                       "moetune_layer_options");
  });
}

moetune_status moetune_layer_create(const moetune_spec* spec, const moetune_weights* weights,
                                    const moetune_layer_options* options, moetune_layer** layer) {
  return guarded([&] { return moetune::capi::create_from(spec, weights, options, layer); });
}

moetune_status moetune_layer_create_dl(const moetune_spec* spec, const moetune_dl_weights* weights,
                                       const moetune_layer_options* options,
                                       moetune_layer** layer) {
  return guarded([&] { return moetune::capi::create_from(spec, weights, options, layer); });
}

moetune_status moetune_layer_create_from_checkpoint(const moetune_spec* spec, const char* model,
                                                    int64_t index, int32_t rank,
                                                    const moetune_layer_options* options,
                                                    moetune_layer** layer) {
  return guarded([&] {
    return moetune::capi::create_from_checkpoint(spec, model, index, rank, options, layer);
  });
}

void moetune_layer_free(moetune_layer* layer) { delete layer; }

size_t moetune_layer_workspace_bytes(const moetune_layer* layer) {
  return layer == nullptr ? 0 : layer->moe->workspace_bytes();
}

moetune_status moetune_layer_set_workspace(moetune_layer* layer, void* workspace, size_t bytes) {
  return guarded([&] { return moetune::capi::give_workspace(layer, workspace, bytes); });
}

moetune_status moetune_layer_selected(moetune_layer* layer, int64_t tokens,
                                      moetune_selected* selected) {
  return guarded([&] { return moetune::capi::select_into(layer, tokens, selected); });
}

const char* moetune_layer_note(const moetune_layer* layer, size_t index) {
  if (layer == nullptr || index >= layer->moe->notes().size()) return nullptr;
  return layer->moe->notes()[index].c_str();
}

const char* moetune_layer_device(const moetune_layer* layer) {
  return layer == nullptr ? "" : layer->device_key.c_str();
}

moetune_status moetune_layer_use_defaults(moetune_layer* layer, int32_t on) {
  return guarded([&] { return moetune::capi::switch_defaults(layer, on); });
}

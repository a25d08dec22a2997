#include "checkpoint/router_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/status_macros.h"
#include "checkpoint/json_events.h"
#include "checkpoint/layer_names.h"
#include "checkpoint/stored_values.h"

namespace moetune::checkpoint {

namespace {

// gpt-oss has a "router", Granite a layer in it; the others call it a gate.
constexpr std::array kRouterNames = {"gate", "router", "router.layer"};
constexpr std::array kSelectionBiasNames = {"gate.e_score_correction_bias",
                                            "e_score_correction_bias"};

Result<std::vector<float>> finite_numbers(Checkpoint& checkpoint, const std::string& name,
                                          std::vector<int64_t> shape) {
  MOETUNE_ASSIGN_OR_RETURN(const StoredTensor* tensor, checkpoint.find(name));
  MOETUNE_ASSIGN_OR_RETURN(std::vector<float> values, numbers_of(*tensor, std::move(shape)));
  const auto wrong =
      std::find_if_not(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  if (wrong == values.end()) return values;
  return Error{
      ErrorCode::kParse,
      fmt::format("{}: value {} is NaN or infinite", tensor->text(), wrong - values.begin()),
      "fetch the file again"};
}

}  // namespace

Result<RouterWeights> read_router_weights(Checkpoint& checkpoint, const ModelSpec& model,
                                          int64_t layer) {
  MOETUNE_ASSIGN_OR_RETURN(const LayerNames names, find_layer(checkpoint, model, layer));
  RouterWeights router;
  const auto* name = std::find_if(kRouterNames.begin(), kRouterNames.end(), [&](const char* one) {
    return checkpoint.has(fmt::format("{}{}.weight", names.prefix, one));
  });
  if (name == kRouterNames.end()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: no router in layer {}: no tensor {}", checkpoint.folder(), layer,
                             in_quotes(names.prefix + "gate.weight")),
                 "is this the checkpoint that config.json belongs to, complete?"};
  }
  const std::string prefix = names.prefix + *name;
  MOETUNE_ASSIGN_OR_RETURN(
      router.weight, finite_numbers(checkpoint, prefix + ".weight", {model.experts, model.hidden}));
  if (checkpoint.has(prefix + ".bias")) {
    MOETUNE_ASSIGN_OR_RETURN(router.logit_bias,
                             finite_numbers(checkpoint, prefix + ".bias", {model.experts}));
  }
  for (const char* bias : kSelectionBiasNames) {
    if (!checkpoint.has(names.prefix + bias)) continue;
    MOETUNE_ASSIGN_OR_RETURN(router.selection_bias,
                             finite_numbers(checkpoint, names.prefix + bias, {model.experts}));
    return router;
  }
  if (!model.router.selection_bias) return router;
  return Error{ErrorCode::kNotFound,
               fmt::format("{}: no tensor {}, which this router chooses experts by",
                           checkpoint.folder(), in_quotes(names.prefix + kSelectionBiasNames[0])),
               "is this the checkpoint that config.json belongs to, complete?"};
}

}  // namespace moetune::checkpoint

// A model's config.json and, after a line "====", its hf_quant_config.json: whatever they hold, the
// result is an error or layers that make sense, in every format and for every rank.
#include "fuzz/fuzz_target.h"
#include "model/model_spec.h"
#include "ops/moe/moe_workbench.h"

namespace moetune::fuzz {
namespace {

void check_layer(const FusedMoeSpec& layer) {
  const Status valid = validate(layer);
  require(valid.ok(), "a layer is valid", valid.ok() ? "" : valid.error().message);
  require(expert_weight_bytes(layer) > 0, "an expert has weights");
  const auto again = moe_spec_of(moe_problem(layer));
  require(again.ok(), "its problem can be read", again.ok() ? "" : again.error().message);
  require(*again == layer, "equal problems mean equal layers", moe_problem(layer).key());
}

void check_layouts(const ModelSpec& model, std::optional<WeightFormat> weights) {
  for (const auto& [tp, ep] : {std::pair{1, 1}, {2, 1}, {8, 1}, {1, 8}, {3, 5}, {64, 64}}) {
    int64_t rows = 0;
    int parts = 0;
    const int ranks = tp * ep;
    for (int rank = 0; rank < ranks; rank += 1 + ranks / 8) {
      const auto layer = layer_spec(model, weights, {.tp = tp, .ep = ep, .rank = rank});
      if (!layer.ok()) continue;
      check_layer(*layer);
      rows += layer->intermediate;
      ++parts;
    }
    if (ep == 1 && ranks <= 8 && parts == ranks)
      require(rows == model.intermediate, "the ranks' shares make up the whole");
  }
  for (const auto& layout : {ParallelLayout{0, 1, 0}, {1, -1, 0}, {1, 1, 1}, {1, 1, -1}})
    require(!layer_spec(model, weights, layout).ok(), "a layout that makes no sense is refused");
}

void run(std::string_view input) {
  const std::string_view config = take_until(input, "\n====\n");
  const auto model = parse_model(config, input, "config.json");
  if (!model.ok()) {
    require(!model.error().message.empty(), "an error says what is wrong");
    return;
  }
  check_layouts(*model, std::nullopt);
  for (const WeightFormat format :
       {WeightFormat::kBf16, WeightFormat::kFp8Block, WeightFormat::kNvfp4, WeightFormat::kMxfp4})
    check_layouts(*model, format);
}

const Register registered("model_config", run);

}  // namespace
}  // namespace moetune::fuzz

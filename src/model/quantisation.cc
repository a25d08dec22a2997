#include "model/quantisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/status_macros.h"

namespace moetune::model {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Matches '*' only, as quantisers' module lists use it. Linear in the text for each star.
bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// Names a module itself, a module that it is part of, or both by pattern. Regular expressions
/// ("re:...") are left out: those in use name attention, routers and shared experts.
bool names_module(std::string_view pattern, std::string_view module) {
  if (pattern.find('*') != std::string_view::npos) return glob_match(pattern, module);
  return module.starts_with(pattern) &&
         (module.size() == pattern.size() || module[pattern.size()] == '.');
}

std::vector<std::string_view> text_list(const Json* value) {
  std::vector<std::string_view> texts;
  if (value == nullptr || !value->is_array()) return texts;
  for (const Json& entry : *value) {
    if (!entry.is_string()) continue;
    std::string_view text = entry.get_ref<const std::string&>();
    constexpr std::string_view kNested = "language_model.";
    if (text.starts_with(kNested)) text.remove_prefix(kNested.size());
    if (text.starts_with("model.") || text.starts_with("*")) texts.push_back(text);
  }
  return texts;
}

int64_t excluded_layers(const Json* patterns, const std::vector<int64_t>& moe_layers) {
  const std::vector<std::string_view> texts = text_list(patterns);
  return std::count_if(moe_layers.begin(), moe_layers.end(), [&](int64_t layer) {
    const std::array names = {fmt::format("model.layers.{}.mlp.experts.0.up_proj", layer),
                              fmt::format("model.layers.{}.block_sparse_moe.experts.0.w1", layer)};
    return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
      return names_module(text, names[0]) || names_module(text, names[1]);
    });
  });
}

Result<StoredWeights> unquantised(const Fields& config, const Fields& outer) {
  StoredWeights stored;
  MOETUNE_ASSIGN_OR_RETURN(const std::string outer_type,
                           outer.text_or({"torch_dtype", "dtype"}, ""));
  MOETUNE_ASSIGN_OR_RETURN(stored.text, config.text_or({"torch_dtype", "dtype"}, outer_type));
  if (stored.text == "float16") {
    stored.format = WeightFormat::kFp16;
  } else {
    stored.format = WeightFormat::kBf16;
    if (stored.text.empty()) {
      stored.text = "unspecified";
      stored.notes.push_back("the config names no number format: bf16 is assumed");
    } else if (stored.text != "bfloat16") {
      stored.notes.push_back(
          fmt::format("the checkpoint holds {}: bf16 is tuned instead", brief(stored.text)));
    }
  }
  return stored;
}

bool is_128x128(const Json* value) {
  return value != nullptr && value->is_array() && value->size() == 2 && (*value)[0] == 128 &&
         (*value)[1] == 128;
}

/// ModelOpt's names of algorithms. Others that end up here (W4A8 and mixed ones) are not ours yet.
std::optional<WeightFormat> modelopt_format(const std::string& algorithm, int64_t group) {
  if (algorithm == "nvfp4" && group == 16) return WeightFormat::kNvfp4;
  if (algorithm == "mxfp4" && group == 32) return WeightFormat::kMxfp4;
  if (algorithm == "fp8") return WeightFormat::kFp8;
  return std::nullopt;
}

Result<StoredWeights> modelopt(const Fields& fields) {
  StoredWeights stored;
  MOETUNE_ASSIGN_OR_RETURN(const std::string algorithm,
                           fields.text_or({"quant_algo"}, "an unnamed algorithm"));
  const int64_t usual = lower(algorithm) == "mxfp4" ? 32 : 16;
  MOETUNE_ASSIGN_OR_RETURN(const int64_t group,
                           fields.integer_or({"group_size"}, 0, 1 << 20, usual));
  stored.format = modelopt_format(lower(algorithm), group);
  stored.text = fmt::format("modelopt {}, groups of {}", algorithm, group);
  return stored;
}

Result<StoredWeights> compressed_tensors(const Fields& fields) {
  StoredWeights stored{std::nullopt, "compressed-tensors", {}};
  MOETUNE_ASSIGN_OR_RETURN(const Fields groups, fields.object_or_empty("config_groups"));
  MOETUNE_ASSIGN_OR_RETURN(const Fields group, groups.object_or_empty("group_0"));
  MOETUNE_ASSIGN_OR_RETURN(const Fields weights, group.object_or_empty("weights"));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t bits, weights.integer_or({"num_bits"}, 1, 64, 0));
  MOETUNE_ASSIGN_OR_RETURN(const std::string type, weights.text_or({"type"}, ""));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t size, weights.integer_or({"group_size"}, -1, 1 << 20, 0));
  MOETUNE_ASSIGN_OR_RETURN(const std::string strategy, weights.text_or({"strategy"}, ""));
  stored.text = fmt::format("compressed-tensors {} {} bits by {}", type, bits,
                            strategy.empty() ? "group" : strategy);
  if (type != "float") return stored;
  if (bits == 4 && size == 16) stored.format = WeightFormat::kNvfp4;
  if (bits == 4 && size == 32) stored.format = WeightFormat::kMxfp4;
  if (bits == 8 && strategy == "tensor") stored.format = WeightFormat::kFp8;
  if (bits == 8 && strategy == "block" && is_128x128(weights.find_value({"block_structure"}))) {
    stored.format = WeightFormat::kFp8Block;
  }
  return stored;
}

Result<StoredWeights> quantised(const Fields& fields) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string method,
                           fields.text_or({"quant_method"}, "an unnamed method"));
  if (method == "modelopt" || method == "modelopt_fp4") return modelopt(fields);
  if (method == "compressed-tensors") return compressed_tensors(fields);
  StoredWeights stored{std::nullopt, method, {}};
  if (method == "mxfp4") stored.format = WeightFormat::kMxfp4;
  if (method == "fp8") {
    const Json* block = fields.find_value({"weight_block_size"});
    if (block == nullptr) stored.format = WeightFormat::kFp8;
    if (is_128x128(block)) stored.format = WeightFormat::kFp8Block;
    if (block != nullptr) stored.text += " by blocks";
  }
  return stored;
}

}  // namespace

Result<StoredWeights> stored_weights(const Fields& config, const Fields& outer,
                                     const Fields& quantisation,
                                     const std::vector<int64_t>& moe_layers) {
  MOETUNE_ASSIGN_OR_RETURN(StoredWeights plain, unquantised(config, outer));
  MOETUNE_ASSIGN_OR_RETURN(const Fields modelopt_file,
                           quantisation.object_or_empty("quantization"));
  const Fields& holder = config.has({"quantization_config"}) ? config : outer;
  MOETUNE_ASSIGN_OR_RETURN(const Fields inside, holder.object_or_empty("quantization_config"));
  if (!modelopt_file.has({"quant_algo"}) && !holder.has({"quantization_config"})) return plain;

  const bool by_file = modelopt_file.has({"quant_algo"});
  const Fields& fields = by_file ? modelopt_file : inside;
  MOETUNE_ASSIGN_OR_RETURN(StoredWeights stored, by_file ? modelopt(fields) : quantised(fields));
  const int64_t left_alone = excluded_layers(
      fields.find_value({"exclude_modules", "ignore", "modules_to_not_convert"}), moe_layers);
  const auto layers = static_cast<int64_t>(moe_layers.size());
  if (layers > 0 && left_alone == layers) {
    plain.notes.push_back(fmt::format("{} leaves the experts as they are", stored.text));
    return plain;
  }
  if (left_alone > 0) {
    stored.notes.push_back(fmt::format(
        "{} of {} MoE layers are not quantised: the others are tuned", left_alone, layers));
  }
  return stored;
}

}  // namespace moetune::model

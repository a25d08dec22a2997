// Which number format a checkpoint's routed experts are stored in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/fields.h"
#include "moetune/moe_spec.h"

namespace moetune::model {

struct StoredWeights {
  std::optional<WeightFormat> format;  ///< Empty: a format that moetune does not have.
  std::string text;                    ///< In the checkpoint's own words.
  std::vector<std::string> notes;
};

/// `config` is the object that describes the language model, `outer` the whole config.json (the
/// same one where nothing is nested), `quantisation` the whole hf_quant_config.json (empty where
/// there is none). `moe_layers` numbers the layers with experts: quantisers list the modules that
/// they left alone, and experts may be among them. kParse where a field has the wrong type.
Result<StoredWeights> stored_weights(const Fields& config, const Fields& outer,
                                     const Fields& quantisation,
                                     const std::vector<int64_t>& moe_layers);

}  // namespace moetune::model

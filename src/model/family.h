// What differs between model families: where sizes stand, and how tokens are routed.
#pragma once

#include <string>
#include <string_view>

#include "model/fields.h"
#include "moetune/moe_spec.h"

namespace moetune::model {

enum class Routing : uint8_t {
  /// Softmax over all experts, then top-k; `norm_topk_prob` says whether the k are renormalised.
  kSoftmax,
  /// Top-k of the logits, then softmax over the k.
  kTopKThenSoftmax,
  /// DeepSeek-V3's: sigmoid (or `scoring_func`) with a selection bias, expert groups and a scale.
  kSigmoid,
  /// An unknown family: as its fields say.
  kByFields,
  /// A known family whose routing the operator does not have.
  kOther,
};

struct Family {
  std::string_view model_type;
  Routing routing = Routing::kByFields;
  bool renormalise = false;      ///< Where `norm_topk_prob` is absent.
  bool own_size_field = true;    ///< `moe_intermediate_size`; false: `intermediate_size`.
  bool shared_gate = false;      ///< Its shared expert's output is scaled by a gate of its own.
  std::string_view reason = {};  ///< Why the operator does not have it (kOther).
};

/// The family of that `model_type`; an unknown one routes by its fields.
const Family& find_family(std::string_view model_type);

/// kUnsupported for a score or grouping that the operator does not have, kParse for
/// malformed fields.
Result<RouterSpec> read_router(const Family& family, const Fields& config, int64_t experts);

/// kUnsupported for an activation that the operator does not have.
Result<Activation> read_activation(const Family& family, const Fields& config);

}  // namespace moetune::model

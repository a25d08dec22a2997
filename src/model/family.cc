#include "model/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/status_macros.h"

namespace moetune::model {
namespace {

constexpr double kMinScale = 1e-6;
constexpr double kMaxScale = 1e6;

// Sorted by nothing but kinship; the reason in brackets is what the family's reference
// implementation does.
constexpr std::array kFamilies = {
    Family{"qwen2_moe", Routing::kSoftmax, false, true, true},
    Family{"qwen3_moe", Routing::kSoftmax},
    Family{"qwen3_next", Routing::kSoftmax, true, true, true},
    Family{"qwen3_vl_moe_text", Routing::kSoftmax, true},
    Family{"olmoe", Routing::kSoftmax, false, false},
    Family{"deepseek_v2", Routing::kSoftmax},
    Family{"deepseek_v3", Routing::kSigmoid, true},
    Family{"deepseek_v32", Routing::kSigmoid, true},
    Family{"kimi_k2", Routing::kSigmoid, true},
    Family{"glm4_moe", Routing::kSigmoid, true},
    Family{"glm_moe_dsa", Routing::kSigmoid, true},
    Family{"nemotron_h", Routing::kSigmoid, true},
    Family{"minimax_m2", Routing::kSigmoid, true, false},
    Family{"mixtral", Routing::kTopKThenSoftmax, false, false},
    Family{"gpt_oss", Routing::kTopKThenSoftmax, false, false},
    Family{"granitemoe", Routing::kTopKThenSoftmax, false, false},
    Family{"granitemoeshared", Routing::kTopKThenSoftmax, false, false},
    Family{"granitemoehybrid", Routing::kTopKThenSoftmax, false, false},
    Family{"phimoe", Routing::kOther, false, false, false,
           "it picks experts by sparse mixing, one after the other"},
    Family{"llama4_text", Routing::kOther, false, false, false,
           "it scales an expert's input, not its output"},
};
constexpr Family kUnknown{"", Routing::kByFields, true};

Result<Score> read_score(const Fields& config, Score fallback) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string name,
                           config.text_or({"scoring_func"}, to_string(fallback)));
  if (name == "softmax") return Score::kSoftmax;
  if (name == "sigmoid") return Score::kSigmoid;
  if (name == "sqrtsoftplus" || name == "sqrt-softplus") return Score::kSqrtSoftplus;
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: scoring_func is {}, which the router does not have", config.where(),
                           brief(name)),
               "it has softmax, sigmoid and sqrtsoftplus"};
}

/// DeepSeek's groups: V3 ranks them by the sum of their two best experts, V2 by the best one.
Status read_groups(const Fields& config, int64_t experts, RouterSpec& router) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string method, config.text_or({"topk_method"}, "noaux_tc"));
  if (method == "greedy") return {};
  MOETUNE_ASSIGN_OR_RETURN(const int64_t groups,
                           config.integer_or({"n_group"}, 1, kMaxMoeGroups, 1));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t kept,
                           config.integer_or({"topk_group"}, 1, groups, groups));
  if (experts % groups != 0) {
    return Error{ErrorCode::kParse,
                 fmt::format("{}: {} experts do not form {} equal groups (n_group)", config.where(),
                             experts, groups)};
  }
  if (kept < groups && method != "noaux_tc") {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: topk_method is {}, which the router does not have",
                             config.where(), brief(method)),
                 "it has greedy and noaux_tc (groups ranked by the sum of their two best experts)"};
  }
  if (kept < groups) {
    router.groups = static_cast<int>(groups);
    router.top_groups = static_cast<int>(kept);
  }
  return {};
}

}  // namespace

const Family& find_family(std::string_view model_type) {
  const auto it = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
    return family.model_type == model_type;
  });
  return it == kFamilies.end() ? kUnknown : *it;
}

Result<RouterSpec> read_router(const Family& family, const Fields& config, int64_t experts) {
  RouterSpec router;
  if (family.routing == Routing::kOther) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: the routing of {} is not supported: {}", config.where(),
                             family.model_type, family.reason)};
  }
  if (family.routing == Routing::kTopKThenSoftmax) {
    router.score_after_top_k = true;
    router.renormalise = false;
    return router;
  }
  const bool sigmoid = family.routing == Routing::kSigmoid;
  MOETUNE_ASSIGN_OR_RETURN(router.score,
                           read_score(config, sigmoid ? Score::kSigmoid : Score::kSoftmax));
  MOETUNE_ASSIGN_OR_RETURN(router.renormalise,
                           config.boolean_or({"norm_topk_prob"}, family.renormalise));
  MOETUNE_ASSIGN_OR_RETURN(const double scale,
                           config.number_or({"routed_scaling_factor"}, kMinScale, kMaxScale, 1));
  router.scale = static_cast<float>(scale);
  MOETUNE_ASSIGN_OR_RETURN(const std::string method,
                           config.text_or({"topk_method"}, sigmoid ? "noaux_tc" : "greedy"));
  router.selection_bias = method == "noaux_tc";
  MOETUNE_RETURN_IF_ERROR(read_groups(config, experts, router));
  return router;
}

Result<Activation> read_activation(const Family& family, const Fields& config) {
  if (family.model_type == "gpt_oss") return Activation::kSwiGluClamped;
  MOETUNE_ASSIGN_OR_RETURN(const std::string name,
                           config.text_or({"mlp_hidden_act", "hidden_act"}, "silu"));
  if (name == "silu" || name == "swish") return Activation::kSwiGlu;
  if (name == "relu2") return Activation::kRelu2;
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: the activation {} is not supported", config.where(), brief(name)),
               "supported are silu (SwiGLU), relu2, and gpt-oss's clamped SwiGLU"};
}

}  // namespace moetune::model

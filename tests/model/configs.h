// Families' config.json files, cut to the fields that matter.
#pragma once

#include "base/json.h"

namespace moetune {

inline Json qwen3_moe_config() {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"model_type", "qwen3_moe"},
          {"decoder_sparse_step", 1},
          {"hidden_act", "silu"},
          {"hidden_size", 2048},
          {"intermediate_size", 6144},
          {"mlp_only_layers", Json::array()},
          {"moe_intermediate_size", 768},
          {"norm_topk_prob", true},
          {"num_experts", 128},
          {"num_experts_per_tok", 8},
          {"num_hidden_layers", 48},
          {"torch_dtype", "bfloat16"}};
}

inline Json deepseek_v3_config() {
  return {{"model_type", "deepseek_v3"},
          {"first_k_dense_replace", 3},
          {"hidden_act", "silu"},
          {"hidden_size", 7168},
          {"intermediate_size", 18432},
          {"moe_intermediate_size", 2048},
          {"moe_layer_freq", 1},
          {"n_group", 8},
          {"n_routed_experts", 256},
          {"n_shared_experts", 1},
          {"norm_topk_prob", true},
          {"num_experts_per_tok", 8},
          {"num_hidden_layers", 61},
          {"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}},
          {"routed_scaling_factor", 2.5},
          {"scoring_func", "sigmoid"},
          {"topk_group", 4},
          {"topk_method", "noaux_tc"},
          {"torch_dtype", "bfloat16"}};
}

inline Json gpt_oss_config() {
  return {{"model_type", "gpt_oss"},
          {"experts_per_token", 4},
          {"hidden_act", "silu"},
          {"hidden_size", 2880},
          {"intermediate_size", 2880},
          {"num_hidden_layers", 24},
          {"num_local_experts", 32},
          {"quantization_config",
           {{"quant_method", "mxfp4"},
            {"modules_to_not_convert",
             {"model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"}}}},
          {"swiglu_limit", 7.0}};
}

}  // namespace moetune

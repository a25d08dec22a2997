// Real weights: one layer of a model folder as it is downloaded (safetensors, one file or many).
//
// Read are the experts of Qwen, DeepSeek, Kimi, GLM, Mixtral, OLMoE, Granite, gpt-oss and what
// names its tensors like one of them, in bf16, fp16, fp8 (per tensor, or by blocks of 128x128),
// nvfp4 (as ModelOpt and compressed-tensors store it) and mxfp4.
//
//   auto spec = moetune::layer_spec("./my-model", {.tp = 4, .rank = 1});
//   auto weights = moetune::checkpoint_weights("./my-model", 3, *spec, 1);
//   auto layer = moetune::FusedMoe::create(*spec, **weights);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune {

/// The experts that `rank` (0 <= rank < tp * ep of `spec`) holds of a layer, one a chunk. `model`
/// is a model's folder, or the config.json in it; layers count from 0, dense ones too. `spec` is
/// layer_spec()'s of that model and rank.
///
/// Files are mapped, and must stay as long as they are while the source lives. A chunk points into
/// them where it can; where it cannot, it takes memory of one expert. F32 experts count as bf16 and
/// are rounded. A bias of the second GEMM is added by the first of the TP ranks, and is zero on the
/// others.
///
/// Every tensor is looked at now: kNotFound for a layer, file or tensor that is not there; kParse
/// for a file that is malformed, or tensors whose type or shape is not what config.json and the
/// format say; kUnsupported for a format that moetune does not have; kInvalidArgument where the
/// layer is stored in another format than `spec` has, or `spec` is not that rank's share. Of a
/// chunk: kParse for a scale or bias that is NaN or infinite, or a negative scale. Messages name
/// file and tensor. Thread-compatible: more sources for more threads.
Result<std::unique_ptr<WeightSource>> checkpoint_weights(const std::string& model, int64_t layer,
                                                         const FusedMoeSpec& spec, int rank = 0);

/// What makes router logits of hidden states: logits = hidden · weightᵀ + logit_bias.
struct RouterWeights {
  std::vector<float> weight;          ///< [global_experts, hidden]
  std::vector<float> logit_bias;      ///< [global_experts]; empty: none (only gpt-oss has one).
  std::vector<float> selection_bias;  ///< [global_experts], FusedMoeOptions::router_bias; or empty.
};

/// The router of a layer, the same for all ranks. Errors as above; kParse where a value is not
/// finite.
Result<RouterWeights> checkpoint_router(const std::string& model, int64_t layer);

/// The global id of the first expert that `rank` holds: FusedMoeOptions::first_expert. 0 where ep
/// is 1. 0 <= rank < tp * ep.
int32_t first_expert(const FusedMoeSpec& spec, int rank);

}  // namespace moetune

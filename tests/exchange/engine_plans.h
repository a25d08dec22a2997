// Plans as tuning leaves them for kernels that an engine hosts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "exchange/engine.h"
#include "moetune/moe_spec.h"
#include "moetune/plan.h"
#include "ops/moe/moe_workbench.h"

namespace moetune::exchange {

inline FusedMoeSpec sample_layer(WeightFormat weights = WeightFormat::kBf16) {
  FusedMoeSpec spec;
  spec.hidden = 2048;
  spec.intermediate = 768;
  spec.experts = spec.global_experts = 128;
  spec.top_k = 8;
  spec.weights = weights;
  return spec;
}

/// A tactic that is told apart by its block size.
inline Tactic triton_tactic(int64_t block_m) {
  return {{"BLOCK_SIZE_M", block_m},      {"BLOCK_SIZE_N", int64_t{64}},
          {"BLOCK_SIZE_K", int64_t{128}}, {"GROUP_SIZE_M", int64_t{1}},
          {"num_warps", int64_t{4}},      {"num_stages", int64_t{3}}};
}

/// from..to with a tactic of that block size; a default where it is 0.
struct Part {
  int64_t from;
  int64_t to;
  int64_t block_m;
};

inline Plan engine_plan(const FusedMoeSpec& spec, const std::vector<Part>& parts,
                        const std::string& host_json, const char* runner = "vllm.triton") {
  Plan plan;
  plan.problem = moe_problem(spec);
  plan.runner = runner;
  plan.layout = "torch";
  plan.max_tokens = parts.back().to;
  for (const Part& part : parts) {
    Decision decision;
    decision.tokens = decision.from = part.from;
    decision.to = part.to;
    decision.is_default = part.block_m == 0;
    const int64_t block_m = part.block_m == 0 ? 256 : part.block_m;
    decision.candidate = {runner, 1, "engine", {{"main", triton_tactic(block_m)}}};
    plan.decisions.push_back(std::move(decision));
  }
  if (!host_json.empty()) plan.extra_json = "{\"host\": " + host_json + "}";
  return plan;
}

/// A host whose default changes after 32 and after 96 tokens.
inline std::string host_json(const char* name = "vllm", const char* version = "0.11.1") {
  const auto one = [](int from, int block_m) {
    return "{\"from\": " + std::to_string(from) +
           ", \"stages\": [{\"name\": \"main\", \"tactic\": {\"BLOCK_SIZE_M\": " +
           std::to_string(block_m) +
           ", \"BLOCK_SIZE_N\": 64, \"BLOCK_SIZE_K\": 32, \"GROUP_SIZE_M\": 8}}]}";
  };
  return std::string("{\"name\": \"") + name + "\", \"versions\": {\"" + name + "\": \"" + version +
         "\", \"triton\": \"3.4.0\"}, \"device_name\": \"NVIDIA H200\", \"defaults\": [" +
         one(1, 1016) + ", " + one(33, 1032) + ", " + one(97, 1064) + "]}";
}

}  // namespace moetune::exchange

// Traffic to measure with: which experts the tokens of a call go to. What a kernel costs depends on
// it (bytes of the experts touched, rows per expert), so that every report names its workload.
//
//   uniform     each token goes to k distinct experts, all equally likely
//   balanced    the least used experts first: round-robin
//   zipf:A      the expert of rank r has a popularity of r^-A; the seed says who has which rank
//   trace:FILE  popularities as recorded, in counts per expert: {"counts": [310, 12, ...]}
//
// With popularities, a token's k distinct experts are drawn one after the other in proportion to
// them, by Gumbel top-k (Kool, van Hoof, Welling, "Stochastic beams and where to find them", 2019).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune {

struct Workload {
  enum class Kind : uint8_t { kUniform, kBalanced, kZipf, kTrace };

  Kind kind = Kind::kUniform;
  double exponent = 0;         ///< Of kZipf.
  std::vector<double> counts;  ///< Of kTrace: per global expert, not negative, their sum positive.
  std::string text = "uniform";  ///< What parse_workload() read: how reports and records name it.
};

/// Reads "uniform", "balanced", "zipf:1.2" (an exponent from 0 to 16) or "trace:FILE", the file
/// with it. kInvalidArgument for another text; kNotFound, kIo or kParse for the file, named in the
/// message.
Result<Workload> parse_workload(std::string_view text);

/// The routing of one call.
struct Routing {
  int64_t tokens = 0;
  std::vector<float> logits;  ///< [tokens, global_experts]; the specification's router makes `ids`
                              ///< and `weights` of them.
  std::vector<float> router_bias;  ///< [global_experts], with selection_bias only.
  std::vector<int32_t> ids;        ///< [tokens, top_k]: what route() says, best first.
  std::vector<float> weights;      ///< [tokens, top_k]
};

/// Routing that follows from the arguments alone, on every machine. `sample` numbers independent
/// draws of the same traffic; the popularities and the router's bias depend on `seed` only. Chosen
/// experts lead by a margin that no rounding of a correct router closes. With expert groups, a
/// token keeps to `top_groups` of them, as its router would make it. kInvalidArgument where a trace
/// does not fit the specification, which must be valid; tokens may be 0. The same for any number of
/// threads (>= 1).
Result<Routing> make_routing(const FusedMoeSpec& spec, const Workload& workload, int64_t tokens,
                             uint64_t seed, uint64_t sample, int threads = 1);

/// Rows that each of the `experts` experts from `first_expert` on has to compute: how often it
/// occurs in `ids`.
std::vector<int64_t> rows_per_expert(std::span<const int32_t> ids, int64_t first_expert,
                                     int64_t experts);

/// How many experts have a row at all.
int64_t touched_experts(std::span<const int64_t> rows_per_expert);

}  // namespace moetune

#include "cuda/mma/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "cuda/mma/workspace.h"

namespace moetune::cuda {
namespace {

// The compiler gets along with so many registers less than estimate_needs() says before it spills.
constexpr int kRegisterSlack = 10;
constexpr int kWidestTile = 128;

std::vector<ParameterValue> values(std::initializer_list<int64_t> list) {
  return {list.begin(), list.end()};
}

struct Stage {
  FusedMoeSpec spec;
  WeightLayout layout;
  ArchitectureLimits limits;
  GemmPath path;
  bool second;  ///< GEMM 2

  const MatrixLayout& matrix() const { return second ? layout.w2 : layout.w13; }
  /// Of one pass, where experts get equal shares.
  double rows_per_expert(int64_t tokens) const {
    return static_cast<double>(std::min(tokens, kPassTokens)) * spec.top_k /
           static_cast<double>(spec.global_experts);
  }
};

std::string why_it_does_not_fit(const Stage& stage, const GemmTactic& t) {
  KernelNeeds needs = estimate_needs(t, stage.layout, stage.matrix());
  const int budget = register_budget(stage.limits, needs.threads, needs.min_blocks);
  if (needs.registers > budget + kRegisterSlack) {
    return fmt::format("needs about {} registers a thread, {} blocks of {} threads leave {}",
                       needs.registers, needs.min_blocks, needs.threads, budget);
  }
  needs.registers = std::min(needs.registers, budget);
  return plan_kernel(stage.limits, needs).reason;
}

std::string why_it_makes_no_sense(const Stage& stage, const GemmTactic& t) {
  const MatrixLayout& m = stage.matrix();
  const int warps = t.threads() / 32;
  if (warps < 4 || warps > 8)
    return fmt::format("{} warps a block, 4 to 8 are enough and few enough", warps);
  if (t.depth > std::max(1, m.units / t.warps_k) * t.sets)
    return "more units in flight than a warp reads";
  if (t.sets > 1 && t.groups_per_block() > m.groups + t.groups * t.warps_m)
    return "more sets of rows than there are";
  if (t.sets > 1 && t.warps_k > 1) return "warps that share a sum work on one set of rows";
  if (t.path == GemmPath::kStream && t.hold && (t.depth % m.units != 0 || t.warps_k > 1)) {
    return fmt::format(
        "holds {} units of activations: depth must be a multiple of that, with all of k in one "
        "warp",
        m.units);
  }
  if (t.path == GemmPath::kTile && t.stages > 0 && t.sets > 1)
    return "sets of rows need all of k in shared memory";
  if (t.path == GemmPath::kTile && t.stages > std::max(2, m.units))
    return "more stages than chunks of k";
  if (t.path == GemmPath::kTile && t.token_tile / t.warps_t < 16)
    return "a warp takes 16 tokens at the least";
  return {};
}

// Wide tiles for few tokens multiply zeros, narrow ones for many read the weights again and again.
std::string why_tile_is_wrong(const Stage& stage, const GemmTactic& t, int64_t tokens) {
  const double rows = stage.rows_per_expert(tokens);
  if (t.token_tile > 8 && t.token_tile >= 2 * tokens)
    return fmt::format("{} tokens leave half of the tile empty", tokens);
  if (t.token_tile > 16 && t.token_tile > 8 * rows)
    return fmt::format("{:.1f} rows an expert leave the tile empty", rows);
  if (t.token_tile < kWidestTile && rows > 8 * t.token_tile)
    return fmt::format("{:.0f} rows an expert would read the weights in many passes", rows);
  return {};
}

std::vector<SpaceRule> rules(const Stage& stage) {
  auto rule = [&](const char* name, auto why) {
    return SpaceRule{name, [stage, why](const Tactic& tactic, int64_t tokens) {
                       return why(stage, read_gemm_tactic(stage.path, tactic), tokens);
                     }};
  };
  std::vector<SpaceRule> list;
  list.push_back(rule("shape", [](const Stage& s, const GemmTactic& t, int64_t) {
    return why_it_makes_no_sense(s, t);
  }));
  if (stage.path != GemmPath::kCombine) list.push_back(rule("tokens", why_tile_is_wrong));
  list.push_back(rule("resources", [](const Stage& s, const GemmTactic& t, int64_t) {
    return why_it_does_not_fit(s, t);
  }));
  return list;
}

Space stream_space(const Stage& stage) {
  std::vector<Parameter> p = {
      {"token_tile", values({8, 16}), "tokens of one expert that a block works on"},
      {"groups", values({1, 2, 4}), "groups of 16 weight rows that a warp multiplies at a time"},
      {"warps_m", values({1, 2, 4, 8}), "warps of a block along the weight rows"},
      {"warps_k", values({1, 2, 4, 8}), "warps of a block along k"},
      {"depth", values({1, 2, 3, 4, 6, 8}),
       "units of 64 k that a warp has in flight for each group"},
      {"sets", stage.second ? values({1, 2, 4, 6, 12}) : values({1}),
       "sets of row groups that a warp works through in one go"},
      {"hold", stage.second ? values({0, 1}) : values({0}),
       "1: activations of all of k stay in registers"},
      {"blocks", values({2, 3, 4, 5}), "blocks per multiprocessor that registers are kept low for"},
  };
  if (stage.second && stage.matrix().units < 16) p[3].values = values({1});
  return {std::move(p), rules(stage)};
}

Space tile_space(const Stage& stage) {
  std::vector<Parameter> p = {
      {"token_tile", values({16, 32, 64, 128}), "tokens of one expert that a block works on"},
      {"groups", values({1, 2, 4}), "groups of 16 weight rows that a warp multiplies at a time"},
      {"warps_m", values({2, 4, 8}), "warps of a block along the weight rows"},
      {"warps_t", values({1, 2}), "warps of a block along the tokens"},
      {"depth", values({1, 2, 3}),
       "units of 64 k of weights that a warp has in flight for each group"},
      {"sets", stage.second ? values({1, 2, 4, 6, 12, 24}) : values({1}),
       "sets of row groups that a warp works through in one go"},
      {"stages", stage.second ? values({0, 2, 3, 4}) : values({2, 3, 4}),
       "chunks of 64 k of the tokens in shared memory; 0: all of k"},
      {"blocks", values({1, 2, 3}), "blocks per multiprocessor that registers are kept low for"},
  };
  return {std::move(p), rules(stage)};
}

Space combine_space(const Stage& stage) {
  std::vector<Parameter> p = {
      {"groups", values({1, 2}), "groups of 16 weight rows of a block"},
      {"warps_m", values({4, 8}), "warps of a block, each with one of a token's experts at a time"},
      {"depth", values({1, 2, 3, 4, 6}), "units of 64 k that a warp has in flight for each group"},
      {"blocks", values({2, 3, 4}), "blocks per multiprocessor that registers are kept low for"},
  };
  auto list = rules(stage);
  list.push_back({"tokens", [](const Tactic&, int64_t tokens) {
                    return tokens > 16
                               ? std::string(
                                     "reads the weights once for every token, for up to 16 tokens")
                               : "";
                  }});
  return {std::move(p), std::move(list)};
}

StageSpace stage_space(const Stage& stage) {
  return {stage.second ? "gemm2" : "gemm1", stage.path == GemmPath::kStream ? stream_space(stage)
                                            : stage.path == GemmPath::kTile ? tile_space(stage)
                                                                            : combine_space(stage)};
}

}  // namespace

const std::vector<SchemePaths>& scheme_paths() {
  static const std::vector<SchemePaths> paths = {
      {"stream", GemmPath::kStream, GemmPath::kStream},
      {"tile", GemmPath::kTile, GemmPath::kTile},
      {"stream-tile", GemmPath::kStream, GemmPath::kTile},
      {"stream-combine", GemmPath::kStream, GemmPath::kCombine},
  };
  return paths;
}

const SchemePaths* find_scheme(std::string_view name) {
  for (const SchemePaths& paths : scheme_paths()) {
    if (name == paths.name) return &paths;
  }
  return nullptr;
}

std::vector<Scheme> make_schemes(const FusedMoeSpec& spec, const ArchitectureLimits& limits) {
  std::vector<Scheme> schemes;
  for (const SchemePaths& paths : scheme_paths()) {
    const Stage first{spec, weight_layout(spec), limits, paths.gemm1, false};
    Stage second = first;
    second.path = paths.gemm2;
    second.second = true;
    schemes.push_back({paths.name, {stage_space(first), stage_space(second)}});
  }
  return schemes;
}

}  // namespace moetune::cuda

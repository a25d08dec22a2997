// Plans for tests: short to write down, different in every field.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "moetune/plan.h"

namespace moetune {

inline DeviceProperties sample_device() {
  return {"cpu", "Some CPU", {{"cores", "2"}, {"isa", "avx2"}}, {{"compiler", "gcc 12"}}};
}

inline Problem sample_problem(const std::string& experts = "8") {
  return {"moe", {{"experts", experts}, {"hidden", "64"}}};
}

inline Candidate sample_candidate(int64_t tile, int version = 1) {
  return {"cpu.one", version, "single", {{"main", Tactic({{"tile", tile}})}}};
}

/// A decision for a tile; tile 0: the default.
inline Decision sample_decision(int64_t from, int64_t to, int64_t tile) {
  Decision decision;
  decision.tokens = decision.from = from;
  decision.to = to;
  decision.is_default = tile == 0;
  decision.candidate = sample_candidate(tile);
  decision.evidence.chosen = {10.5, 10.25, 10.4, 10.6, 30};
  decision.evidence.fallback = {12.5, 12.25, 12.4, 12.6, 30};
  decision.evidence.speedup = 1.19;
  decision.evidence.speedup_low = 1.15;
  decision.evidence.speedup_high = 1.21;
  decision.evidence.resolved = true;
  decision.evidence.workload = "uniform";
  decision.evidence.note = "a note";
  decision.evidence.candidates = 12;
  decision.evidence.rejected = 2;
  decision.evidence.date = "2025-01-31T12:00:00Z";
  decision.evidence.challenger = "cpu.one/single main{tile=2}";
  return decision;
}

/// Intervals that end at these sizes, each with a tile; tile 0: the default.
inline Plan sample_plan(const std::vector<std::pair<int64_t, int64_t>>& ends_and_tiles,
                        Problem problem = sample_problem()) {
  Plan plan;
  plan.problem = std::move(problem);
  plan.runner = "cpu.one";
  plan.layout = "plain";
  int64_t from = 1;
  for (const auto& [to, tile] : ends_and_tiles) {
    plan.decisions.push_back(sample_decision(from, to, tile));
    from = to + 1;
  }
  plan.max_tokens = from - 1;
  return plan;
}

}  // namespace moetune

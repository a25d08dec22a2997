#include "cli/lookup_cost.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/statistics.h"

namespace moetune::cli {
namespace {

constexpr int64_t kBlock = 1000;

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<size_t>(values.size(), 1));
}

}  // namespace

LookupCost measure_lookups(const PlanHandle& plan, int64_t max_tokens, int64_t lookups) {
  using Clock = std::chrono::steady_clock;
  Random random(1);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < kBlock; ++i)
    tokens.push_back(1 + random.below(static_cast<uint32_t>(max_tokens)));

  std::vector<double> blocks_ns;
  uintptr_t used = 0;  // So that no look-up can be left out.
  for (int64_t done = 0; done < lookups; done += kBlock) {
    const auto start = Clock::now();
    for (int64_t count : tokens) used += reinterpret_cast<uintptr_t>(plan.find(count).decision) + 1;
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    blocks_ns.push_back(took.count() / kBlock);
  }
  if (used == 0) return {};
  const size_t tenth = std::max<size_t>(blocks_ns.size() / 10, 1);
  const std::span<const double> all(blocks_ns);
  return {static_cast<int64_t>(blocks_ns.size()) * kBlock, mean(all.first(tenth)),
          mean(all.last(tenth)), median(all)};
}

}  // namespace moetune::cli

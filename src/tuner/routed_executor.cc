#include "tuner/routed_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace moetune {
namespace {

class RoutedExecutor final : public Executor {
 public:
  explicit RoutedExecutor(std::map<std::string, Executor*> by_runner)
      : by_runner_(std::move(by_runner)) {
    for (const auto& [runner, executor] : by_runner_) {
      if (std::find(all_.begin(), all_.end(), executor) == all_.end()) all_.push_back(executor);
    }
  }

  // Where nothing is loaded nothing needs to be held: memory may be the same device's.
  Status load(std::span<const WeightLayout> layouts, Scale scale) override {
    std::map<Executor*, std::vector<WeightLayout>> wanted;
    for (const WeightLayout& layout : layouts) {
      MOETUNE_ASSIGN_OR_RETURN(Executor * executor, of(layout.runner));
      wanted[executor].push_back(layout);
    }
    loaded_.clear();
    for (Executor* executor : all_) {
      const auto found = wanted.find(executor);
      if (found == wanted.end()) {
        executor->unload();
        continue;
      }
      MOETUNE_RETURN_IF_ERROR(executor->load(found->second, scale));
      loaded_.push_back(executor);
    }
    return {};
  }

  Status select(const Case& c, int samples) override {
    for (Executor* executor : loaded_) MOETUNE_RETURN_IF_ERROR(executor->select(c, samples));
    return {};
  }

  int prefetch(std::span<const Candidate> candidates, int64_t tokens) override {
    int first = -1;
    for (Executor* executor : loaded_) {
      std::vector<Candidate> own;
      std::vector<int> positions;
      for (size_t i = 0; i < candidates.size(); ++i) {
        const auto found = by_runner_.find(candidates[i].runner);
        if (found == by_runner_.end() || found->second != executor) continue;
        own.push_back(candidates[i]);
        positions.push_back(static_cast<int>(i));
      }
      const int at = executor->prefetch(own, tokens);
      if (at < 0 || static_cast<size_t>(at) >= positions.size()) continue;
      const int position = positions[static_cast<size_t>(at)];
      first = first < 0 ? position : std::min(first, position);
    }
    return first;
  }

  Result<CheckOutput> check(const Candidate& candidate, int sample,
                            std::span<const int64_t> rows) override {
    MOETUNE_ASSIGN_OR_RETURN(Executor * executor, of(candidate.runner));
    return executor->check(candidate, sample, rows);
  }

  Result<std::vector<Sample>> measure(std::span<const Candidate* const> order, int stage,
                                      int calls) override {
    std::vector<Sample> samples;
    samples.reserve(order.size());
    for (const Candidate* candidate : order) {
      MOETUNE_ASSIGN_OR_RETURN(Executor * executor, of(candidate->runner));
      MOETUNE_ASSIGN_OR_RETURN(const auto one, executor->measure({&candidate, 1}, stage, calls));
      samples.insert(samples.end(), one.begin(), one.end());
    }
    return samples;
  }

  void unload() override {
    for (Executor* executor : all_) executor->unload();
    loaded_.clear();
  }

 private:
  Result<Executor*> of(const std::string& runner) const {
    const auto found = by_runner_.find(runner);
    if (found != by_runner_.end()) return found->second;
    return Error{ErrorCode::kNotFound, fmt::format("nothing runs candidates of {}", runner)};
  }

  std::map<std::string, Executor*> by_runner_;
  std::vector<Executor*> all_;
  std::vector<Executor*> loaded_;
};

}  // namespace

std::unique_ptr<Executor> make_routed_executor(std::map<std::string, Executor*> by_runner) {
  return std::make_unique<RoutedExecutor>(std::move(by_runner));
}

}  // namespace moetune

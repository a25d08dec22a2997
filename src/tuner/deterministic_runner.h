// Runners whose candidates all keep to one order of sums: what the deterministic mode tunes with.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moetune/runner.h"

namespace moetune {

/// The runner it is made from, which must outlive it, except that it excludes candidates that are
/// not deterministic.
class DeterministicRunner final : public TunableRunner {
 public:
  explicit DeterministicRunner(TunableRunner& runner) : runner_(runner) {}

  std::string name() const override { return runner_.name(); }
  int version() const override { return runner_.version(); }
  const std::vector<Scheme>& schemes() const override { return runner_.schemes(); }
  Candidate default_candidate(int64_t tokens) const override {
    return runner_.default_candidate(tokens);
  }
  Candidate default_in_layout(const std::string& layout, int64_t tokens) const override {
    return runner_.default_in_layout(layout, tokens);
  }
  std::vector<std::string> layouts() const override { return runner_.layouts(); }
  std::string layout(const Candidate& candidate) const override {
    return runner_.layout(candidate);
  }
  bool is_deterministic(const Candidate& candidate) const override {
    return runner_.is_deterministic(candidate);
  }
  std::string why_excluded(const Candidate& candidate, int64_t tokens) const override;
  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const override {
    return runner_.workspace_bytes(candidate, tokens);
  }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    return runner_.compile(candidate, max_tokens);
  }
  void prefetch(std::span<const Candidate> candidates) override { runner_.prefetch(candidates); }
  Result<std::shared_ptr<PackedWeights>> pack(const std::string& layout,
                                              WeightSource& source) override {
    return runner_.pack(layout, source);
  }
  Status unpack(const PackedWeights& weights, WeightSink& sink) const override {
    return runner_.unpack(weights, sink);
  }

 private:
  TunableRunner& runner_;
};

/// One for each of some runners, in their order.
class DeterministicRunners {
 public:
  explicit DeterministicRunners(std::span<TunableRunner* const> runners);
  std::span<TunableRunner* const> pointers() const { return pointers_; }

 private:
  std::vector<std::unique_ptr<DeterministicRunner>> runners_;
  std::vector<TunableRunner*> pointers_;
};

/// Why a candidate is out in the deterministic mode; empty where it is not.
std::string why_not_deterministic(const TunableRunner& runner, const Candidate& candidate);

}  // namespace moetune

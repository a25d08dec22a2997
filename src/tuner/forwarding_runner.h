// What a runner that changes a little of another one's behaviour is derived from.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moetune/runner.h"

namespace moetune {

/// Behaves in everything like the runner it is made from, which must outlive it. A function that
/// TunableRunner gains is forwarded here, once for all.
class ForwardingRunner : public TunableRunner {
 public:
  explicit ForwardingRunner(TunableRunner& runner) : runner_(runner) {}

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
  bool has_exact_check() const override { return runner_.has_exact_check(); }
  std::string why_excluded(const Candidate& candidate, int64_t tokens) const override {
    return runner_.why_excluded(candidate, tokens);
  }
  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const override {
    return runner_.workspace_bytes(candidate, tokens);
  }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    return runner_.compile(candidate, max_tokens);
  }
  void prefetch(std::span<const Candidate> candidates) override { runner_.prefetch(candidates); }
  bool is_compiled(const Candidate& candidate) const override {
    return runner_.is_compiled(candidate);
  }
  Result<std::shared_ptr<PackedWeights>> pack(const std::string& layout,
                                              WeightSource& source) override {
    return runner_.pack(layout, source);
  }
  Status unpack(const PackedWeights& weights, WeightSink& sink) const override {
    return runner_.unpack(weights, sink);
  }

 protected:
  TunableRunner& runner_;
};

}  // namespace moetune

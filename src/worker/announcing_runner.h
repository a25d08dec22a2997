// A runner that says when it compiles: the parent has one deadline for compiling and another for
// running, and wants to know in which of the two a helper died.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "moetune/runner.h"

namespace moetune::worker {

/// Behaves like `runner`, which must outlive it, and tells `announce` before ("compile") and after
/// ("run") every compilation.
class AnnouncingRunner final : public TunableRunner {
 public:
  using Announce = std::function<void(const char* phase)>;

  AnnouncingRunner(TunableRunner& runner, Announce announce)
      : runner_(runner), announce_(std::move(announce)) {}

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
  std::string why_excluded(const Candidate& candidate, int64_t tokens) const override {
    return runner_.why_excluded(candidate, tokens);
  }
  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const override {
    return runner_.workspace_bytes(candidate, tokens);
  }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    announce_("compile");
    auto executable = runner_.compile(candidate, max_tokens);
    announce_("run");
    return executable;
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
  Announce announce_;
};

}  // namespace moetune::worker

// A runner whose candidates must do for a whole bucket, though they are measured at one size of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "moetune/runner.h"
#include "tuner/choice_entry.h"

namespace moetune {

/// The runner it is made from, except that it excludes what cannot run at every size of the bucket.
/// Its own default is measured all the same: where another size has another default, that one runs
/// there.
class BucketRunner final : public TunableRunner {
 public:
  BucketRunner(TunableRunner& runner, SizeRange sizes) : runner_(runner), sizes_(sizes) {}

  std::string name() const override { return runner_.name(); }
  int version() const override { return runner_.version(); }
  const std::vector<Scheme>& schemes() const override { return runner_.schemes(); }
  Candidate default_candidate(int64_t tokens) const override {
    return runner_.default_candidate(tokens);
  }
  std::vector<std::string> layouts() const override { return runner_.layouts(); }
  void prefetch(std::span<const Candidate> candidates) override { runner_.prefetch(candidates); }
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
  Result<std::shared_ptr<PackedWeights>> pack(const std::string& layout,
                                              WeightSource& source) override {
    return runner_.pack(layout, source);
  }
  Status unpack(const PackedWeights& weights, WeightSink& sink) const override {
    return runner_.unpack(weights, sink);
  }

 private:
  TunableRunner& runner_;
  SizeRange sizes_;
};

}  // namespace moetune

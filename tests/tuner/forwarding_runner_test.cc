#include "tuner/forwarding_runner.h"

#include <gtest/gtest.h>

#include "tuner/bucket_runner.h"
#include "tuner/deterministic_runner.h"

namespace moetune {
namespace {

// Answers everything otherwise than TunableRunner does by itself.
class UnusualRunner final : public TunableRunner {
 public:
  std::string name() const override { return "unusual"; }
  int version() const override { return 7; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t) const override { return of("plain"); }
  Candidate default_in_layout(const std::string& layout, int64_t) const override {
    return of(layout);
  }
  std::vector<std::string> layouts() const override { return {"rows", "tiles"}; }
  std::string layout(const Candidate& candidate) const override { return candidate.scheme; }
  bool is_deterministic(const Candidate&) const override { return false; }
  bool has_exact_check() const override { return false; }
  std::string why_excluded(const Candidate&, int64_t) const override { return "unusual"; }
  size_t workspace_bytes(const Candidate&, int64_t) const override { return 77; }
  Result<std::shared_ptr<Executable>> compile(const Candidate&, int64_t) override {
    return Error{ErrorCode::kCompile, "unusual"};
  }
  void prefetch(std::span<const Candidate> candidates) override { hinted = candidates.size(); }
  Result<std::shared_ptr<PackedWeights>> pack(const std::string& layout, WeightSource&) override {
    return Error{ErrorCode::kRun, layout};
  }

  static Candidate of(const std::string& scheme) { return {"unusual", 7, scheme, {}}; }
  bool is_compiled(const Candidate&) const override { return false; }
  size_t hinted = 0;

 private:
  std::vector<Scheme> schemes_{{"one", {}}, {"two", {}}};
};

class NoWeights final : public WeightSource {
 public:
  int64_t chunks() const override { return 0; }
  Result<Tensors> chunk(int64_t) override { return Tensors{}; }
};

void expect_forwarded(TunableRunner& runner, UnusualRunner& original) {
  const Candidate candidate = UnusualRunner::of("rows");
  EXPECT_EQ(runner.name(), "unusual");
  EXPECT_EQ(runner.version(), 7);
  EXPECT_EQ(&runner.schemes(), &original.schemes());
  EXPECT_EQ(runner.default_candidate(3).scheme, "plain");
  EXPECT_EQ(runner.default_in_layout("tiles", 3).scheme, "tiles");
  EXPECT_EQ(runner.layouts(), original.layouts());
  EXPECT_EQ(runner.layout(candidate), "rows");
  EXPECT_FALSE(runner.is_deterministic(candidate));
  EXPECT_FALSE(runner.has_exact_check());
  EXPECT_NE(runner.why_excluded(candidate, 3), "");
  EXPECT_EQ(runner.workspace_bytes(candidate, 3), 77u);
  EXPECT_EQ(runner.compile(candidate, 3).error().message, "unusual");
  runner.prefetch({&candidate, 1});
  EXPECT_EQ(original.hinted, 1u);
  EXPECT_FALSE(runner.is_compiled(candidate));
  NoWeights weights;
  EXPECT_EQ(runner.pack("rows", weights).error().message, "rows");
}

TEST(ForwardingRunner, AnswersEverythingAsTheOriginal) {
  UnusualRunner original;
  ForwardingRunner forwarding(original);
  expect_forwarded(forwarding, original);
  EXPECT_EQ(forwarding.why_excluded(UnusualRunner::of("rows"), 3), "unusual");
}

// A plan in another layout than the default's falls back to default_in_layout().
TEST(ForwardingRunner, WhatIsMadeFromItChangesOnlyWhatItSays) {
  UnusualRunner original;
  BucketRunner bucket(original, {1, 8});
  expect_forwarded(bucket, original);
  original.hinted = 0;
  DeterministicRunner deterministic(original);
  expect_forwarded(deterministic, original);
}

}  // namespace
}  // namespace moetune

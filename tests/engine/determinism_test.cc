// Case 34: the same bits on every run, whatever number of threads, of every scheme that says so.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/backend.h"
#include "engine/moe_session.h"
#include "tuner/tune_space.h"

namespace moetune {
namespace {

constexpr int kCandidatesPerScheme = 6;
constexpr int kRuns = 4;

FusedMoeSpec spec_of(WeightFormat weights) {
  FusedMoeSpec spec;
  spec.hidden = 320;
  spec.intermediate = 192;
  spec.experts = spec.global_experts = 8;
  spec.top_k = 3;
  spec.weights = weights;
  return spec;
}

std::string name_of(const Candidate& candidate, int64_t tokens) {
  return candidate.text() + " at " + std::to_string(tokens) + " tokens";
}

/// Some candidates of every scheme that are deterministic, the default first.
std::vector<Candidate> some_candidates(MoeSession& session, int64_t tokens) {
  const CandidateSpace space(session.runners(), *Buckets::from({tokens}), true);
  std::vector<Candidate> some = {session.default_runner().default_candidate(tokens)};
  Random random(7);
  for (const LayoutGroup& group : space.groups()) {
    for (const Arm& arm : space.arms(group, tokens)) {
      for (int i = 0; i < kCandidatesPerScheme; ++i) {
        const size_t stage = static_cast<size_t>(i) % arm.base.stages.size();
        const auto all = space.variations(arm, group, stage, arm.base, tokens);
        const Candidate& one = all[random.below(static_cast<uint32_t>(all.size()))];
        if (session.default_runner().is_deterministic(one)) some.push_back(one);
      }
    }
  }
  return some;
}

using Candidates = std::map<int64_t, std::vector<Candidate>>;  // by tokens

/// The output's bits by tokens and candidate, from one device; every run of it must agree. Fills in
/// the candidates where there are none.
std::vector<std::vector<std::byte>> bits_of(Backend& backend, const FusedMoeSpec& spec,
                                            Candidates& candidates) {
  std::vector<std::vector<std::byte>> found;
  auto session = MoeSession::create(backend, spec, 1);
  EXPECT_TRUE(session.ok()) << session.error().message;
  if (!session.ok()) return found;
  TunableRunner& runner = (*session)->default_runner();
  Executor& executor = (*session)->executor();
  const WeightLayout layout{runner.name(), runner.layout(runner.default_candidate(1))};
  EXPECT_TRUE(executor.load({&layout, 1}, Scale::kFull).ok());
  for (const int64_t tokens : {1, 7, 65, 200}) {
    EXPECT_TRUE(executor.select({tokens, "zipf:1.2", 3}, 1).ok());
    std::vector<int64_t> rows(static_cast<size_t>(tokens));
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<Candidate>& these = candidates[tokens];
    if (these.empty()) these = some_candidates(**session, tokens);
    for (const Candidate& candidate : these) {
      std::vector<std::byte> first;
      for (int run = 0; run < kRuns; ++run) {
        const auto output = executor.check(candidate, 0, rows);
        EXPECT_TRUE(output.ok()) << output.error().message;
        if (!output.ok()) return found;
        EXPECT_FALSE(output->storage.at(0).empty());
        if (run == 0) first = output->storage[0];
        EXPECT_TRUE(output->storage[0] == first) << name_of(candidate, tokens) << ", run " << run;
      }
      found.push_back(std::move(first));
    }
  }
  return found;
}

class Determinism : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(Determinism, EveryCpuCandidateGivesTheSameBitsOverRunsAndThreads) {
  std::vector<std::vector<std::byte>> expected;
  Candidates candidates;  // Defaults depend on the number of threads: those of one thread.
  for (const int threads : {1, 2, 3}) {
    auto backend = open_backend("cpu", {.threads = threads});
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    const auto bits = bits_of(**backend, spec_of(GetParam()), candidates);
    ASSERT_GT(bits.size(), 4u * kCandidatesPerScheme);
    if (threads == 1) expected = bits;
    ASSERT_EQ(bits.size(), expected.size());
    for (size_t i = 0; i < bits.size(); ++i)
      EXPECT_TRUE(bits[i] == expected[i]) << "output " << i << " with " << threads << " threads";
  }
}

TEST_P(Determinism, EveryGpuCandidateGivesTheSameBitsOnEveryRun) {
  auto backend = open_backend("cuda:0");
  if (!backend.ok()) GTEST_SKIP() << backend.error().message;
  Candidates candidates;
  EXPECT_GT(bits_of(**backend, spec_of(GetParam()), candidates).size(), 4u * kCandidatesPerScheme);
}

INSTANTIATE_TEST_SUITE_P(Formats, Determinism,
                         ::testing::Values(WeightFormat::kBf16, WeightFormat::kNvfp4),
                         [](const auto& format) { return std::string(to_string(format.param)); });

}  // namespace
}  // namespace moetune

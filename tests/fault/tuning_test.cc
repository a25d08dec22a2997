// Tuning among all faults at once: the fastest right candidate wins, and each of the others has a
// reason.
#include <map>
#include <string>

#include "fault/fault_test.h"
#include "moetune/autotuner.h"
#include "moetune/host_device.h"

namespace moetune::testing {
namespace {

TEST_F(FaultTest, TuningCompletesWithTheRightWinner) {
  WorkerPolicy policy = impatient(1);
  policy.memory_bytes = size_t{256} << 20;
  start(policy);
  const auto runner = make_faulty_runner(nullptr);
  TunableRunner* runners[] = {runner.get()};
  AutoTuner tuner(host_properties());
  TuneRequest request{
      .problem = bench_->problem(), .runners = runners, .buckets = *Buckets::from({4})};
  request.budget_s = 120;
  request.bench = bench_.get();
  request.executor = executor_.get();
  const auto report = tuner.tune(request);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(report->plan.decisions.size(), 1u);
  EXPECT_EQ(report->plan.decisions[0].candidate, faulty("fast"));

  std::map<std::string, std::string> reasons;
  for (const Rejection& rejection : report->rejected) {
    const std::string kind(rejection.candidate.stages[0].tactic.word("kind"));
    EXPECT_TRUE(reasons.emplace(kind, rejection.error.message).second) << kind << " met twice";
  }
  for (const FaultyKind& kind : faulty_kinds()) {
    EXPECT_EQ(reasons.contains(kind.name), !kind.right) << kind.name << ": " << reasons[kind.name];
  }
  EXPECT_TRUE(report->warnings.empty()) << report->warnings[0];
  EXPECT_EQ(host_->respawns(), 10) << "one for each that kills or hangs";
  EXPECT_EQ(host_->trouble(), "");
}

}  // namespace
}  // namespace moetune::testing

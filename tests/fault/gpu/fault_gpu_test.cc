// What kernels can do wrong on a real GPU: named with its reason, at the cost of one helper at
// most, and the next candidate runs as if nothing had been.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <ostream>
#include <string>

#include "cuda/device.h"
#include "fault/fault_test.h"
#include "fault/gpu/faulty_gpu_runner.h"
#include "moetune/autotuner.h"

namespace moetune::testing {
namespace {

using ::testing::HasSubstr;

class GpuFaultTest : public FaultTest {
 protected:
  void SetUp() override {
    // Looks without a context: what the helper does to the device must not be this process' doing.
    if (cuda::list_cuda_devices().empty()) GTEST_SKIP() << "no usable GPU";
  }
  void start_on_gpu(WorkerPolicy policy = patient()) {
    start(policy, find_helper_program("moetune-worker-faulty-gpu"));
  }
};

TEST_F(GpuFaultTest, RightKernelsAreRight) {
  start_on_gpu();
  for (const char* kind : {"default", "good", "fast"}) EXPECT_EQ(verdict(kind), "") << kind;
  const auto fast = measure("fast", 10);
  const auto good = measure("good", 10);
  ASSERT_TRUE(fast.ok() && good.ok());
  EXPECT_GT(fast->at(0).us, 0);
  EXPECT_GT(good->at(0).us, 2 * fast->at(0).us);
  EXPECT_EQ(host_->respawns(), 0);
}

struct Poison {
  const char* kind;
  ErrorCode code;
  const char* reason;
};

void PrintTo(const Poison& poison, std::ostream* out) { *out << poison.kind; }

class Poisoned : public GpuFaultTest, public ::testing::WithParamInterface<Poison> {};

TEST_P(Poisoned, CostsOneHelperAndTheNextCandidateRuns) {
  start_on_gpu(impatient(5));
  ASSERT_EQ(verdict("good"), "");
  const Poison& poison = GetParam();
  const double fault_s = seconds_of([&] {
    const auto output = check(poison.kind);
    ASSERT_FALSE(output.ok());
    EXPECT_EQ(output.error().code, poison.code) << output.error().message;
    EXPECT_THAT(output.error().message, HasSubstr(faulty(poison.kind).text()));
    EXPECT_THAT(output.error().message, HasSubstr(poison.reason));
  });
  const double respawn_s = seconds_of([&] { EXPECT_EQ(verdict("good"), ""); });
  EXPECT_FALSE(check(poison.kind).ok()) << "never sent again";
  EXPECT_EQ(host_->respawns(), 1);
  EXPECT_EQ(host_->trouble(), "");
  fmt::print(
      "{}: the fault was known after {:.2f} s, a new helper had run the next candidate {:.2f} s "
      "later\n",
      poison.kind, fault_s, respawn_s);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Poisoned,
    ::testing::Values(Poison{"illegal_address", ErrorCode::kRun, "illegal"},
                      Poison{"misaligned_address", ErrorCode::kRun, "misaligned"},
                      Poison{"trap", ErrorCode::kRun, "unspecified launch failure"},
                      Poison{"endless", ErrorCode::kDeadline, "longer than 5 s"}),
    [](const auto& each) { return std::string(each.param.kind); });

TEST_F(GpuFaultTest, WhatIsWrongIsSaidByTheParent) {
  start_on_gpu();
  EXPECT_EQ(verdict("wrong"), "not right");
  EXPECT_EQ(verdict("not_a_number"), "not finite");
  EXPECT_EQ(verdict("half_written"), "not finite");
  EXPECT_EQ(verdict("does_nothing"), "not finite");
  EXPECT_EQ(verdict("past_the_end"), "wrote past the end of y");
  EXPECT_EQ(verdict("before_the_start"), "wrote before the start of y");
  EXPECT_EQ(verdict("changes_its_input"), "changed its input x");
  EXPECT_EQ(verdict("wrong_later"), "");
  ASSERT_TRUE(measure("wrong_later", 30).ok());
  EXPECT_EQ(verdict("wrong_later"), "not right");
  EXPECT_THAT(verdict("no_program"), HasSubstr("compile: "));
  EXPECT_THAT(verdict("cannot_launch"), HasSubstr("run: "));
  EXPECT_THAT(verdict("takes_all_memory"), HasSubstr("out_of_memory: "));
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), 0);
}

TEST_F(GpuFaultTest, TuningCompletesWithTheRightWinner) {
  start_on_gpu(impatient(5));
  const auto runner = make_faulty_gpu_runner(nullptr);
  TunableRunner* runners[] = {runner.get()};
  const DeviceProperties device = cuda::list_cuda_devices().front();
  AutoTuner tuner(device);
  TuneRequest request{
      .problem = bench_->problem(), .runners = runners, .buckets = *Buckets::from({4})};
  request.budget_s = 60;
  request.device = device;
  request.bench = bench_.get();
  request.executor = executor_.get();
  const auto report = tuner.tune(request);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(report->plan.decisions.size(), 1u);
  EXPECT_EQ(report->plan.decisions[0].candidate, faulty("fast"));

  std::map<std::string, std::string> reasons;
  for (const Rejection& rejection : report->rejected) {
    reasons.emplace(std::string(rejection.candidate.stages[0].tactic.word("kind")),
                    rejection.error.message);
  }
  int costly = 0;
  for (const GpuFault& fault : gpu_faults()) {
    EXPECT_EQ(reasons.contains(fault.name), !fault.right)
        << fault.name << ": " << reasons[fault.name];
    costly += fault.costs_a_helper;
  }
  EXPECT_EQ(host_->respawns(), costly);
  EXPECT_EQ(host_->trouble(), "");
}

}  // namespace
}  // namespace moetune::testing

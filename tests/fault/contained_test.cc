// Each kind of fault: named with its reason, at the cost of one helper at most, and the next
// candidate runs as if nothing had been.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <ostream>
#include <thread>

#include "fault/fault_test.h"
#include "fault/processes.h"

namespace moetune::testing {
namespace {

using ::testing::HasSubstr;

// Sanitizers turn crashes into exits.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

struct Expected {
  const char* kind;
  ErrorCode code;
  const char* reason;
  bool costs_a_helper;
};

void PrintTo(const Expected& expected, std::ostream* out) { *out << expected.kind; }

class Contained : public FaultTest, public ::testing::WithParamInterface<Expected> {};

TEST_P(Contained, IsNamedAndTheNextCandidateRuns) {
  const Expected& expected = GetParam();
  const bool hangs = std::string(expected.kind).find("hang") != std::string::npos;
  WorkerPolicy policy = hangs ? impatient(0.5) : patient();
  policy.memory_bytes = size_t{1} << 30;
  start(policy);
  const auto output = check(expected.kind);
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(output.error().code, expected.code) << output.error().message;
  EXPECT_THAT(output.error().message, HasSubstr(faulty(expected.kind).text()));
  if (!kIsSanitized) {
    EXPECT_THAT(output.error().message, HasSubstr(expected.reason));
  }
  // The same words again, without a helper for them.
  const auto again = check(expected.kind);
  ASSERT_FALSE(again.ok());
  if (expected.costs_a_helper) {
    EXPECT_EQ(again.error().message, output.error().message);
  }
  EXPECT_FALSE(measure(expected.kind).ok());

  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), expected.costs_a_helper ? 1 : 0);
  EXPECT_EQ(host_->trouble(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Contained,
    ::testing::Values(
        Expected{"crash_in_compile", ErrorCode::kCompile,
                 "signal 11 (Segmentation fault) while compiling", true},
        Expected{"hang_in_compile", ErrorCode::kDeadline, "longer than 0.5 s", true},
        Expected{"throw_in_compile", ErrorCode::kCompile, "no such instruction", false},
        Expected{"crash", ErrorCode::kRun, "signal 11 (Segmentation fault) while running", true},
        Expected{"abort", ErrorCode::kRun, "signal 6 (Aborted)", true},
        Expected{"exit", ErrorCode::kRun, "ended with status 0", true},
        Expected{"hang", ErrorCode::kDeadline, "longer than 0.5 s and was ended while running",
                 true},
        Expected{"throw", ErrorCode::kRun, "of its own making", false},
        Expected{"closes_files", ErrorCode::kRun, "the helper process", true},
        Expected{"forks_and_crashes", ErrorCode::kRun, "signal 11", true},
        Expected{"writes_to_the_socket", ErrorCode::kRun, "no answer", true},
        Expected{"loses_the_device", ErrorCode::kRun, "the device is lost", true}),
    [](const auto& each) { return std::string(each.param.kind); });

class FaultTiming : public FaultTest {};

TEST_F(FaultTiming, EachFaultEndsWithinASecondOfItsDeadline) {
  constexpr double kLimit_s = 0.5;
  start(impatient(kLimit_s));
  for (const FaultyKind& kind : faulty_kinds()) {
    const std::string name = kind.name;
    // Without a limit on memory this one is only a question of how much there is.
    if (name == "memory_hog") continue;
    const double took = seconds_of([&] { (void)check(name); });
    EXPECT_LT(took, (name.starts_with("hang") ? kLimit_s : 0) + 1) << name;
    EXPECT_EQ(verdict("good"), "") << "after " << name;
  }
}

TEST_F(FaultTest, MemoryIsLimited) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer's memory cannot be limited";
  WorkerPolicy policy = patient();
  policy.memory_bytes = size_t{512} << 20;
  start(policy);
  EXPECT_THAT(verdict("memory_hog"), HasSubstr("out_of_memory"));
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), 0);
}

TEST_F(FaultTest, WhatIsWrongIsSaidByTheParent) {
  start();
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(verdict("wrong"), "not right");
  EXPECT_EQ(verdict("not_a_number"), "not finite");
  EXPECT_EQ(verdict("unwritten"), "not finite");
  EXPECT_EQ(verdict("half_written"), "not finite");
  EXPECT_EQ(verdict("past_the_end"), "wrote past the end of y");
  EXPECT_EQ(verdict("changes_its_input"), "changed its input x");
  EXPECT_EQ(verdict("wrong_later"), "");
  ASSERT_TRUE(measure("wrong_later", 30).ok());
  EXPECT_EQ(verdict("wrong_later"), "not right");
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), 0);
}

TEST_F(FaultTest, TimesComeAsTheyWereTaken) {
  start();
  EXPECT_DOUBLE_EQ(measure("good", 4)->at(0).us, 150);
  EXPECT_EQ(measure("zero_time")->at(0).us, 0);
  EXPECT_EQ(measure("negative_time")->at(0).us, -1);
  EXPECT_TRUE(std::isnan(measure("no_time")->at(0).us));
}

TEST_F(FaultTest, AFloodOfOutputIsBoundedAndItsEndIsKept) {
  start();
  EXPECT_EQ(verdict("floods"), "");
  EXPECT_LE(host_->output().size(), size_t{64} << 10);
  EXPECT_THAT(host_->output(), HasSubstr("the end of the flood"));
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->output(), "") << "of another candidate";
}

TEST_F(FaultTest, AChildThatHoldsTheSocketHidesNoCrash) {
  start();
  const double took = seconds_of([&] { EXPECT_FALSE(check("forks_and_crashes").ok()); });
  EXPECT_LT(took, 30) << "the deadline is 60 s";
}

TEST_F(FaultTest, WhatACandidateLeavesBehindEndsWithTheHelper) {
  start();
  EXPECT_EQ(verdict("leaves_a_child"), "");
  const pid_t group = host_->pid();
  EXPECT_EQ(running_in_group(group), 2);
  executor_.reset();
  host_.reset();
  EXPECT_EQ(left_in_group(group), 0);
}

TEST_F(FaultTest, ANewHelperHasWhatTheOldOneHeld) {
  start();
  select(3);
  EXPECT_EQ(verdict("good", 2), "");
  EXPECT_FALSE(check("crash").ok());
  EXPECT_EQ(verdict("good", 2), "") << "the same case with as many samples";
  EXPECT_EQ(verdict("fast", 1), "");
  EXPECT_EQ(host_->respawns(), 1);
}

TEST_F(FaultTest, AHelperThatDiesBetweenRequestsIsNobodysFault) {
  start();
  const pid_t helper = host_->pid();
  ASSERT_EQ(::kill(helper, SIGKILL), 0);
  ASSERT_EQ(left_in_group(helper), 0);
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), 1);
}

TEST_F(FaultTest, ExecutorsShareAHelperAndSurviveEachOther) {
  start();
  const std::unique_ptr<Executor> first = std::move(executor_);
  make_executor(false);
  select();
  EXPECT_FALSE(check("abort").ok());
  EXPECT_EQ(verdict("good"), "");
  const auto rows = bench_->check_rows(case_, Scale::kFull, 0);
  EXPECT_TRUE(first->check(faulty("good"), 0, rows).ok());
  EXPECT_FALSE(first->check(faulty("abort"), 0, rows).ok());
  EXPECT_EQ(host_->respawns(), 1);
}

TEST_F(FaultTest, ArgumentsCanBeSentInsteadOfMade) {
  start();
  make_executor(true);
  select(3);
  for (int sample = 0; sample < 3; ++sample) EXPECT_EQ(verdict("good", sample), "");
  EXPECT_EQ(verdict("changes_its_input"), "changed its input x");
  EXPECT_EQ(verdict("good"), "") << "repaired from what was sent";
  EXPECT_FALSE(check("crash").ok());
  EXPECT_EQ(verdict("good", 2), "") << "sent again";
}

// Arguments of a case are made once, and sent again.
TEST_F(FaultTest, ACaseThatComesBackFindsItsArguments) {
  class Counting final : public ForwardingBench {
   public:
    using ForwardingBench::ForwardingBench;
    Result<Tensors> arguments(const Case& c, Scale scale, int sample) override {
      ++made;
      return ForwardingBench::arguments(c, scale, sample);
    }
    int made = 0;
  };
  start();
  Counting counting(*bench_);
  make_executor(true, &counting);
  const int before = counting.made;
  select(3);
  case_.tokens = 7;
  select(2);
  EXPECT_EQ(counting.made - before, 5);
  EXPECT_EQ(verdict("good", 1), "");
  case_.tokens = 4;
  select(3);
  EXPECT_EQ(verdict("good", 2), "");
  case_.tokens = 7;
  select(2);
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(counting.made - before, 5);
  case_.seed = 99;
  select(2);
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(counting.made - before, 7);
}

TEST_F(FaultTest, AHintReachesTheRunner) {
  start();
  EXPECT_EQ(executor_->prefetch(std::vector<Candidate>{faulty("crash"), faulty("good")}, 4), 1);
  EXPECT_EQ(executor_->prefetch(std::vector<Candidate>{faulty("fast"), faulty("good")}, 4), 0);
  EXPECT_EQ(verdict("good"), "");
  EXPECT_THAT(host_->output(), HasSubstr("2 kernels were announced"));
}

TEST_F(FaultTest, NothingIsLeftAfterFiftyCrashes) {
  WorkerPolicy policy = patient();
  policy.strikes = 1000;
  start(policy);
  const int files = open_files();
  const int children = children_of(::getpid());
  const Candidate crash = faulty("crash");
  for (int version = 1; version <= 50; ++version) {
    Candidate another = crash;  // Each is a candidate of its own, or it would not be sent.
    another.runner_version = version;
    EXPECT_FALSE(executor_->check(another, 0, std::vector<int64_t>{0}).ok());
  }
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), 50);
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(children_of(::getpid()), children);
}

}  // namespace
}  // namespace moetune::testing

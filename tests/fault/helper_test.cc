// The helper as a process: missing, of another version, dying, stopped, outliving nobody.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "fault/fault_test.h"
#include "fault/processes.h"
#include "worker/messages.h"

namespace moetune::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A helper that runs this shell script.
std::vector<std::string> script(const std::string& text) { return {"/bin/sh", "-c", text}; }

std::string hello(const std::string& version) {
  return R"(printf '{"hello":"moetune-worker","protocol":1,"version":")" + version +
         R"("}\n' >&3; )";
}

Error start_error(std::vector<std::string> command) {
  const auto host = WorkerHost::start({std::move(command), {}});
  EXPECT_FALSE(host.ok());
  return host.ok() ? Error{} : host.error();
}

TEST(Helper, ThatIsMissingIsNamed) {
  const Error error = start_error({"/nonexistent/moetune-worker"});
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("/nonexistent/moetune-worker"));
}

TEST(Helper, OfAnotherVersionIsRefusedWithBothVersions) {
  const Error error = start_error(script(hello("0.0.9") + "exec sleep 100"));
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("0.0.9"));
  EXPECT_THAT(error.message, HasSubstr(worker::version()));
  EXPECT_THAT(error.hint, HasSubstr("one build"));
}

TEST(Helper, ThatIsSomethingElseIsRefused) {
  for (const char* text : {"echo hi >&3; exec sleep 100", "exit 3", "exec 3>&-; exec sleep 100",
                           "echo [1] >&3", "echo '{\"id\":1}' >&3", "echo '{\"hello\":7}' >&3"}) {
    EXPECT_EQ(start_error(script(text)).code, ErrorCode::kUnsupported) << text;
  }
}

TEST(Helper, ThatSaysNothingIsNotWaitedForForEver) {
  const auto host = WorkerHost::start({script("exec sleep 100"), {.start_s = 0.2}});
  ASSERT_FALSE(host.ok());
  EXPECT_THAT(host.error().message, HasSubstr("longer than 0.2 s"));
}

TEST(Helper, ThatDiesBeforeItRunsAnythingIsGivenUpAfterThreeTimes) {
  const auto host =
      WorkerHost::start({script(hello(worker::version()) + "echo why >&2; exit 7"), {}});
  ASSERT_TRUE(host.ok()) << host.error().message;
  const auto executor =
      make_worker_executor(*host, {.problem = {"faulty", {}}, .options = {}, .device_key = {}});
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.error().code, ErrorCode::kInterrupted);
  EXPECT_THAT((*host)->trouble(), HasSubstr("3 helper processes died in a row"));
  EXPECT_THAT((*host)->trouble(), HasSubstr("status 7"));
  EXPECT_EQ((*host)->respawns(), 2);
  EXPECT_EQ((*host)->pid(), -1);
}

TEST_F(FaultTest, AnotherDeviceThanTheParentsIsRefused) {
  start();
  const auto made = make_worker_executor(
      host_, {.problem = bench_->problem(), .options = {}, .device_key = "cuda sm=90"});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(made.error().message, HasSubstr("cuda sm=90"));
}

// The same problem with other inputs, as another build of one version might make them.
class OtherInputs final : public ForwardingBench {
 public:
  using ForwardingBench::ForwardingBench;
  Result<Tensors> arguments(const Case& c, Scale scale, int sample) override {
    return ForwardingBench::arguments({c.tokens, c.workload, c.seed + 1}, scale, sample);
  }
};

TEST_F(FaultTest, AHelperThatMakesOtherDataIsRefusedUnlessItIsSentThem) {
  start();
  OtherInputs other(*bench_);
  WorkerPlace place{.problem = bench_->problem(), .options = {}, .device_key = {}, .bench = &other};
  const auto made = make_worker_executor(host_, place);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(made.error().message, HasSubstr("makes other data"));
  EXPECT_THAT(made.error().hint, HasSubstr("one build"));
  EXPECT_EQ(verdict("good"), "") << "and is nobody's death";
  place.sends_arguments = true;
  EXPECT_TRUE(make_worker_executor(host_, place).ok());
}

TEST_F(FaultTest, AnOperatorThatTheHelperDoesNotHaveIsSaid) {
  start();
  const auto made =
      make_worker_executor(host_, {.problem = {"unheard_of", {}}, .options = {}, .device_key = {}});
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("unheard_of"));
  EXPECT_EQ(verdict("good"), "") << "and is nobody's death";
  EXPECT_EQ(host_->respawns(), 0);
}

TEST_F(FaultTest, AHelperThatMeasuresNoCeilingsSaysSoAndGoesOn) {
  start();
  const auto ceilings = measure_worker_ceilings(
      host_, {.problem = bench_->problem(), .options = {}, .device_key = {}}, 1 << 20);
  ASSERT_FALSE(ceilings.ok());
  EXPECT_EQ(ceilings.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(verdict("good"), "") << "and is nobody's death";
  EXPECT_EQ(host_->respawns(), 0);
}

TEST_F(FaultTest, CtrlCIsForTheParent) {
  start();
  EXPECT_EQ(::getpgid(host_->pid()), host_->pid()) << "a terminal signals the group of the parent";
  ASSERT_EQ(::kill(host_->pid(), SIGINT), 0);
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), 0);
}

TEST_F(FaultTest, AStopEndsAHangSoon) {
  WorkerPolicy policy = patient();
  policy.stop_grace_s = 0.1;
  start(policy);
  std::stop_source source;
  host_->stop_on(source.get_token());
  std::thread stopper([&] {
    std::this_thread::sleep_for(200ms);
    source.request_stop();
  });
  const double took = seconds_of([&] {
    const auto output = check("hang");
    ASSERT_FALSE(output.ok());
    EXPECT_EQ(output.error().code, ErrorCode::kInterrupted);
  });
  stopper.join();
  EXPECT_LT(took, 30) << "the deadline is 60 s";
  EXPECT_EQ(host_->pid(), -1);
}

TEST_F(FaultTest, AHelperDiesWithItsParentWhateverItIsDoing) {
  for (const char* kind : {"hang", "hang_in_compile"}) {
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    const pid_t parent = ::fork();
    if (parent == 0) {
      start();
      const pid_t helper = host_->pid();
      [[maybe_unused]] ssize_t written = ::write(report[1], &helper, sizeof helper);
      verdict("leaves_a_child");
      written = ::write(report[1], &helper, sizeof helper);
      (void)check(kind);
      ::_exit(0);
    }
    pid_t helper = 0;
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(::read(report[0], &helper, sizeof helper), static_cast<ssize_t>(sizeof helper));
    }
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(running_in_group(helper), 2) << kind;
    ASSERT_EQ(::kill(parent, SIGKILL), 0);
    ::waitpid(parent, nullptr, 0);
    EXPECT_EQ(left_in_group(helper), 0) << kind;
    ::close(report[0]);
    ::close(report[1]);
  }
}

TEST_F(FaultTest, AThreadThatStartedAHelperMayEnd) {
  std::thread([this] { start(); }).join();
  EXPECT_EQ(verdict("good"), "");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(verdict("good"), "");
  EXPECT_EQ(host_->respawns(), 0);
}

}  // namespace
}  // namespace moetune::testing

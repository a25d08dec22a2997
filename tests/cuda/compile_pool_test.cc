#include "cuda/compile_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "cuda/compile_worker.h"
#include "cuda/nvrtc.h"

namespace moetune::cuda {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const CompileJob kJob{
    .source = "x", .headers = {{"a.cuh", "1"}}, .kernels = {"k"}, .options = {"-DX"}};

// A worker that runs this shell script; the pool adds two arguments, which it may ignore.
std::vector<std::string> script(const std::string& text) { return {"/bin/sh", "-c", text}; }

TEST(CompileProtocol, KeepsJobsAndOutcomesWhole) {
  CompileJob job = kJob;
  job.precompiled_header = true;
  const auto read = decode_job(encode(job));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->source, job.source);
  EXPECT_EQ(read->headers.at(0).name, "a.cuh");
  EXPECT_EQ(read->headers.at(0).text, "1");
  EXPECT_EQ(read->kernels, job.kernels);
  EXPECT_EQ(read->options, job.options);
  EXPECT_TRUE(read->precompiled_header);

  const CompileOutcome outcome{true, "log \xff", {"_Z1kv"}, {std::byte{0}, std::byte{255}}, 1.5};
  const auto answer = decode_outcome(encode(outcome));
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->ok);
  EXPECT_EQ(answer->log, outcome.log);
  EXPECT_EQ(answer->symbols, outcome.symbols);
  EXPECT_EQ(answer->cubin, outcome.cubin);
  EXPECT_EQ(answer->seconds, 1.5);
}

TEST(CompileProtocol, RefusesWhatIsNoMessage) {
  EXPECT_FALSE(decode_job({}).ok());
  EXPECT_FALSE(decode_job({0xc1, 0xff}).ok());
  EXPECT_FALSE(decode_outcome(encode(kJob)).ok());
  std::vector<uint8_t> cut = encode(kJob);
  cut.resize(cut.size() / 2);
  EXPECT_FALSE(decode_job(cut).ok());
}

TEST(CompileProtocol, EndsWithTheOtherEndAndKeepsToTheTime) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const auto late = receive_message(ends[0], std::chrono::steady_clock::now() + 20ms);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadline);

  const std::vector<uint8_t> message(100'000, 7);
  std::thread sender([&] { EXPECT_TRUE(send_message(ends[1], message).ok()); });
  const auto received = receive_message(ends[0]);
  sender.join();
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(received->value(), message);

  ::close(ends[1]);
  const auto closed = receive_message(ends[0]);
  ASSERT_TRUE(closed.ok());
  EXPECT_FALSE(closed->has_value());
  EXPECT_FALSE(send_message(ends[0], message).ok()) << "and no signal ends the process";
  ::close(ends[0]);
}

TEST(CompilerPool, AMissingProgramIsNamed) {
  CompilerPool pool({"/nonexistent/moetune-jit"}, "libnvrtc", 1);
  const auto outcome = pool.run(kJob, 1s);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("/nonexistent/moetune-jit"));
}

TEST(CompilerPool, ACompilerThatCrashesCostsOneProgram) {
  // Reads a little first, so that the job has arrived when it dies.
  CompilerPool pool(script("head -c 8 <&3 >/dev/null; kill -SEGV $$"), "libnvrtc", 1);
  for (int i = 0; i < 2; ++i) {
    const auto outcome = pool.run(kJob, 10s);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code, ErrorCode::kCompile);
    EXPECT_THAT(outcome.error().message, HasSubstr("died of signal 11"));
  }
}

TEST(CompilerPool, ACompilerThatHangsIsStopped) {
  CompilerPool pool(script("exec sleep 100"), "libnvrtc", 1);
  const auto start = std::chrono::steady_clock::now();
  const auto outcome = pool.run(kJob, 100ms);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kDeadline);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 50s);
}

TEST(CompilerPool, ACompilerThatAnswersNonsenseIsNoAnswer) {
  CompilerPool pool(script("head -c 100000 /dev/zero | tr '\\0' 'x' >&3; exec sleep 100"),
                    "libnvrtc", 1);
  const auto outcome = pool.run(kJob, 10s);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kParse);
}

TEST(CompilerPool, AnUnusableLibraryIsSaidByTheProcess) {
  const auto command = find_compile_worker();
  ASSERT_FALSE(command.empty()) << "moetune-jit is built beside the tests";
  CompilerPool pool(command, "/nonexistent/libnvrtc.so", 1);
  const auto outcome = pool.run(kJob, 20s);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_FALSE(outcome->ok);
  EXPECT_THAT(outcome->log, HasSubstr("/nonexistent/libnvrtc.so"));
}

TEST(CompilerPool, UsesAProcessAgain) {
  const auto nvrtc = load_nvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().message;
  CompilerPool pool(find_compile_worker(), (*nvrtc)->path, 2);
  for (int i = 0; i < 3; ++i) {
    const CompileJob job{.source = "template <int i> __global__ void k(int* p) { *p = i; }",
                         .headers = {},
                         .kernels = {"k<" + std::to_string(i) + ">"},
                         .options = {"--gpu-architecture=sm_90"}};
    const auto outcome = pool.run(job, 60s);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_TRUE(outcome->ok) << outcome->log;
    EXPECT_GT(outcome->cubin.size(), 100u);
  }
}

}  // namespace
}  // namespace moetune::cuda

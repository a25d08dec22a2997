#include "moetune/function_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moetune/host_device.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

FunctionRunner::Definition definition(int64_t* seen) {
  FunctionRunner::Definition made;
  made.name = "mine";
  made.version = 3;
  made.space = Space({{"tile", {1, 2}, ""}});
  made.default_tactic = [](int64_t tokens) { return Tactic({{"tile", tokens > 10 ? 2 : 1}}); };
  made.run = [seen](const Call&, const Tactic& tactic) -> Status {
    *seen = tactic.number("tile");
    return {};
  };
  return made;
}

TEST(FunctionRunner, RunsTheFunctionWithTheTacticItWasCompiledFor) {
  int64_t seen = 0;
  FunctionRunner runner(definition(&seen));
  EXPECT_EQ(runner.default_candidate(1).text(), "mine/single main{tile=1}");
  EXPECT_EQ(runner.default_candidate(1).runner_version, 3);
  const auto executable = runner.compile(runner.default_candidate(11), 11);
  ASSERT_TRUE(executable.ok());
  ASSERT_TRUE((*executable)->run({}).ok());
  EXPECT_EQ(seen, 2);
}

TEST(FunctionRunner, RefusesWhatIsNotItsOwn) {
  int64_t seen = 0;
  FunctionRunner runner(definition(&seen));
  Candidate outside = runner.default_candidate(1);
  outside.stages[0].tactic.set("tile", 3);
  EXPECT_THAT(runner.compile(outside, 1).error().message, HasSubstr("tile=3 is none of 1, 2"));
  Candidate foreign = runner.default_candidate(1);
  foreign.runner = "other";
  EXPECT_EQ(runner.compile(foreign, 1).error().code, ErrorCode::kCompile);
}

TEST(FunctionRunner, WorkspaceIsWhatTheDefinitionSays) {
  int64_t seen = 0;
  FunctionRunner::Definition made = definition(&seen);
  EXPECT_EQ(FunctionRunner(made).workspace_bytes(FunctionRunner(made).default_candidate(1), 1), 0u);
  made.workspace_bytes = [](const Tactic& tactic, int64_t tokens) {
    return static_cast<size_t>(tactic.number("tile") * tokens);
  };
  FunctionRunner runner(made);
  EXPECT_EQ(runner.workspace_bytes(runner.default_candidate(20), 20), 40u);
}

TEST(HostDevice, CopiesFillsRunsAndTimes) {
  const auto device = make_host_device();
  EXPECT_EQ(device->properties().kind, "cpu");
  EXPECT_GE(device->free_memory_bytes(), size_t{1} << 20);
  const auto buffer = device->allocate(100);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 256, 0u);
  const std::vector<uint8_t> sent(100, 7);
  std::vector<uint8_t> got(100, 0);
  ASSERT_TRUE(device->upload((*buffer)->data(), sent.data(), 100).ok());
  ASSERT_TRUE(device->fill((*buffer)->data(), 9, 10).ok());
  ASSERT_TRUE(device->download(got.data(), (*buffer)->data(), 100).ok());
  EXPECT_EQ(got[9], 9);
  EXPECT_EQ(got[10], 7);

  int calls = 0;
  const auto sequence = device->record({[&](void*) -> Status {
                                          ++calls;
                                          return {};
                                        },
                                        [&](void*) -> Status {
                                          calls += 10;
                                          return {};
                                        }});
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ(calls, 0) << "recording runs nothing";
  const auto us = (*sequence)->sample_us(3);
  EXPECT_EQ(calls, 33);
  ASSERT_TRUE(us.ok());
  EXPECT_GT(*us, 0);
}

TEST(HostDevice, AFailedCallEndsTheSample) {
  const auto device = make_host_device();
  const auto sequence = device->record({[](void*) -> Status {
    return Error{ErrorCode::kRun, "no"};
  }});
  EXPECT_EQ((*sequence)->sample_us(1).error().code, ErrorCode::kRun);
  EXPECT_FALSE(device->record({}).ok());
}

TEST(HostDevice, MemoryThatIsNotThereIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers end the program instead";
#endif
  const auto device = make_host_device();
  const auto buffer = device->allocate(size_t{1} << 60);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace moetune

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <stdexcept>

#include "moetune/measuring.h"
#include "tuner/virtual_time.h"

namespace moetune {
namespace {

constexpr int64_t kColumns = 3;

// y = 2 x, by kernels of different characters.
using Body = std::function<Status(const Call&)>;

float* input(const Call& call) { return call.arguments->at(0).as<float>(); }
float* output(const Call& call) { return call.arguments->at(1).as<float>(); }
int64_t values(const Call& call) { return call.arguments->at(0).values(); }

Status doubled(const Call& call) {
  for (int64_t i = 0; i < values(call); ++i) output(call)[i] = 2 * input(call)[i];
  return {};
}

class DoublingRunner final : public TunableRunner {
 public:
  explicit DoublingRunner(std::map<std::string, Body> bodies) : bodies_(std::move(bodies)) {
    Parameter parameter{"kind", {}, "which kernel"};
    for (const auto& [word, body] : bodies_) parameter.values.emplace_back(word);
    schemes_ = {{"two", {{"first", Space({parameter})}, {"second", Space()}}}};
  }

  std::string name() const override { return "doubling"; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t) const override { return of("good"); }
  size_t workspace_bytes(const Candidate&, int64_t) const override { return workspace; }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    ++compiled;
    last_max_tokens = max_tokens;
    const std::string word(candidate.stages[0].tactic.word("kind"));
    if (word == "does_not_compile") throw std::runtime_error("no such instruction");
    return std::shared_ptr<Executable>(std::make_shared<Kernel>(*this, bodies_.at(word)));
  }

  Candidate of(const std::string& word) const {
    return {name(), 1, "two", {{"first", Tactic({{"kind", word}})}, {"second", Tactic()}}};
  }

  size_t workspace = 64;
  int compiled = 0;
  int64_t last_max_tokens = 0;
  std::vector<std::string> runs;  // "all 1" and "stage 0 1", the number being the first input
  std::vector<void*> workspaces;

 private:
  class Kernel final : public Executable {
   public:
    Kernel(DoublingRunner& runner, Body body) : runner_(runner), body_(std::move(body)) {}
    Status run(const Call& call) override {
      note("all", call);
      return body_(call);
    }
    Status run_stage(int stage, const Call& call) override {
      note("stage " + std::to_string(stage), call);
      return {};
    }

   private:
    void note(const std::string& what, const Call& call) {
      runner_.runs.push_back(what + " " + std::to_string(static_cast<int>(input(call)[0])));
      runner_.workspaces.push_back(call.workspace);
    }
    DoublingRunner& runner_;
    Body body_;
  };

  std::map<std::string, Body> bodies_;
  std::vector<Scheme> schemes_;
};

// Inputs of sample s begin with s + 1.
class DoublingBench final : public Workbench {
 public:
  const Problem& problem() const override { return problem_; }
  WeightSource& weights(Scale) override { return weights_; }
  Result<Tensors> arguments(const Case& c, Scale, int sample) override {
    data_.assign(static_cast<size_t>(c.tokens * kColumns), static_cast<float>(sample + 1));
    return Tensors{{"x", DataType::kF32, {c.tokens, kColumns}, data_.data()},
                   {"y", DataType::kF32, {c.tokens, kColumns}, nullptr}};
  }
  int outputs() const override { return 1; }
  std::vector<int64_t> check_rows(const Case& c, Scale, int) override { return {0, c.tokens - 1}; }
  Verdict judge(const Case&, Scale, int, std::span<const int64_t>, const Tensors&) override {
    return {};
  }
  Work work(const Case&, Scale, int) override { return {}; }

 private:
  class NoWeights final : public WeightSource {
   public:
    int64_t chunks() const override { return 0; }
    Result<Tensors> chunk(int64_t) override { return Tensors{}; }
  };
  Problem problem_{"double", {}};
  NoWeights weights_;
  std::vector<float> data_;
};

class InProcessTest : public ::testing::Test {
 protected:
  void make(std::map<std::string, Body> bodies, int64_t tokens = 4, int samples = 1) {
    bodies.emplace("good", doubled);
    runner_ = std::make_unique<DoublingRunner>(std::move(bodies));
    executor_ = make_in_process_executor(device_, bench_, {runner_.get()});
    const std::vector<WeightLayout> layouts{{"doubling", "plain"}};
    ASSERT_TRUE(executor_->load(layouts, Scale::kFull).ok());
    ASSERT_TRUE(executor_->select({tokens, "uniform", 0}, samples).ok());
  }

  std::string damage_of(const std::string& word) {
    const std::vector<int64_t> rows{0};
    const auto out = executor_->check(runner_->of(word), 0, rows);
    return out.ok() ? out->damage : "error: " + out.error().message;
  }

  VirtualTimeDevice device_;
  DoublingBench bench_;
  std::unique_ptr<DoublingRunner> runner_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(InProcessTest, BringsBackTheRowsAskedFor) {
  make({}, 4, 2);
  const std::vector<int64_t> rows{3, 0};
  const auto out = executor_->check(runner_->of("good"), 1, rows);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->damage, "");
  ASSERT_EQ(out->outputs.size(), 1u);
  EXPECT_EQ(out->outputs[0].shape, (std::vector<int64_t>{2, kColumns}));
  EXPECT_EQ(out->outputs[0].as<float>()[0], 4);
  EXPECT_EQ(runner_->last_max_tokens, 4);
}

TEST_F(InProcessTest, OutputsThatAreNotWrittenAreNotNumbers) {
  make({{"lazy", [](const Call&) { return Status(); }}});
  const std::vector<int64_t> rows{0};
  ASSERT_TRUE(executor_->check(runner_->of("good"), 0, rows).ok());
  const auto out = executor_->check(runner_->of("lazy"), 0, rows);
  ASSERT_TRUE(out.ok());
  EXPECT_TRUE(std::isnan(out->outputs[0].as<float>()[0]));
}

TEST_F(InProcessTest, NoticesWritesBesideBuffersAndIntoInputs) {
  const auto poke = [](auto where) {
    return [where](const Call& call) {
      *where(call) = 1;
      return doubled(call);
    };
  };
  make({{"past_output",
         poke([](const Call& c) { return reinterpret_cast<uint8_t*>(output(c) + values(c)); })},
        {"before_output",
         poke([](const Call& c) { return reinterpret_cast<uint8_t*>(output(c)) - 1; })},
        {"past_input",
         poke([](const Call& c) { return reinterpret_cast<uint8_t*>(input(c) + values(c)); })},
        {"past_workspace", poke([](const Call& c) {
           return static_cast<uint8_t*>(c.workspace) + c.workspace_bytes;
         })},
        {"changes_input",
         poke([](const Call& c) { return reinterpret_cast<uint8_t*>(input(c)); })}});
  EXPECT_EQ(damage_of("past_output"), "wrote past the end of y");
  EXPECT_EQ(damage_of("before_output"), "wrote before the start of y");
  EXPECT_EQ(damage_of("past_input"), "wrote past the end of x");
  EXPECT_EQ(damage_of("past_workspace"), "wrote past the end of its workspace");
  EXPECT_EQ(damage_of("changes_input"), "changed its input x");
  EXPECT_EQ(damage_of("good"), "") << "what others damaged is repaired, and no fault of this one";
}

TEST_F(InProcessTest, DamageDoneWhileTimedIsNotBlamedOnTheNext) {
  int runs = 0;
  make({{"later", [&](const Call& call) {
           if (++runs > 1) output(call)[values(call)] = 1;
           return doubled(call);
         }}});
  EXPECT_EQ(damage_of("later"), "");
  const Candidate later = runner_->of("later");
  const Candidate* order[] = {&later};
  ASSERT_TRUE(executor_->measure(order, -1, 1).ok());
  EXPECT_EQ(damage_of("good"), "");
  EXPECT_EQ(damage_of("later"), "wrote past the end of y");
}

TEST_F(InProcessTest, AWorkspaceHoldsNothingUseful) {
  make({{"counts_on_zero", [](const Call& call) {
           if (*static_cast<uint8_t*>(call.workspace) != 0)
             return Status(Error{ErrorCode::kRun, "dirty"});
           return doubled(call);
         }}});
  EXPECT_NE(damage_of("counts_on_zero").find("dirty"), std::string::npos);
}

TEST_F(InProcessTest, WhatARunnerThrowsIsAnErrorThatNamesTheCandidate) {
  make({{"does_not_compile", doubled},
        {"throws", [](const Call&) -> Status { throw std::runtime_error("oh"); }},
        {"too_big", [](const Call&) -> Status { throw std::bad_alloc(); }},
        {"odd", [](const Call&) -> Status { throw 3; }}});
  const std::vector<int64_t> rows{0};
  for (const auto& [word, code] :
       std::map<std::string, ErrorCode>{{"does_not_compile", ErrorCode::kCompile},
                                        {"throws", ErrorCode::kRun},
                                        {"too_big", ErrorCode::kOutOfMemory},
                                        {"odd", ErrorCode::kRun}}) {
    const auto checked = executor_->check(runner_->of(word), 0, rows);
    ASSERT_FALSE(checked.ok()) << word;
    EXPECT_EQ(checked.error().code, code) << word;
    EXPECT_NE(checked.error().message.find(runner_->of(word).text()), std::string::npos);
    const Candidate candidate = runner_->of(word);
    const Candidate* order[] = {&candidate};
    EXPECT_FALSE(executor_->measure(order, -1, 1).ok());
  }
  EXPECT_EQ(damage_of("good"), "");
}

TEST_F(InProcessTest, AnAllocationThatFailsLeavesRoomForTheNext) {
  make({});
  runner_->workspace = size_t{1} << 60;
  EXPECT_NE(damage_of("good").find("error"), std::string::npos);
  runner_->workspace = 64;
  make({});
  EXPECT_EQ(damage_of("good"), "");
}

TEST_F(InProcessTest, EveryCandidateMeetsTheSameSequenceOfRoutings) {
  make({{"other", doubled}}, 4, 3);
  const Candidate good = runner_->of("good");
  const Candidate other = runner_->of("other");
  const Candidate* order[] = {&good, &other, &good};
  const auto samples = executor_->measure(order, -1, 6);
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ(samples->size(), 3u);
  std::vector<std::string> expected;
  for (int sample = 0; sample < 3; ++sample) {
    for (int call = 0; call < 6; ++call) expected.push_back("all " + std::to_string(call % 3 + 1));
  }
  EXPECT_EQ(runner_->runs, expected);
}

TEST_F(InProcessTest, CompilesOncePerSize) {
  make({});
  const Candidate good = runner_->of("good");
  const Candidate* order[] = {&good, &good};
  ASSERT_TRUE(executor_->measure(order, -1, 2).ok());
  EXPECT_EQ(damage_of("good"), "");
  EXPECT_EQ(runner_->compiled, 1);
  ASSERT_TRUE(executor_->select({2, "uniform", 0}, 1).ok());
  ASSERT_TRUE(executor_->measure(order, -1, 2).ok());
  EXPECT_EQ(runner_->compiled, 1);
  ASSERT_TRUE(executor_->select({8, "uniform", 0}, 1).ok());
  ASSERT_TRUE(executor_->measure(order, -1, 2).ok());
  EXPECT_EQ(runner_->compiled, 2);
  EXPECT_EQ(runner_->last_max_tokens, 8);
}

TEST_F(InProcessTest, AStageIsTimedOnIntermediatesOfItsOwnCall) {
  make({{"other", doubled}}, 4, 2);
  const Candidate good = runner_->of("good");
  const Candidate other = runner_->of("other");
  const Candidate* order[] = {&good, &good, &other};
  ASSERT_TRUE(executor_->measure(order, 1, 2).ok());
  const std::vector<std::string> once{"all 1", "all 2", "stage 1 1", "stage 1 2"};
  std::vector<std::string> expected = once;
  expected.insert(expected.end(), {"stage 1 1", "stage 1 2"});  // still there for the second sample
  expected.insert(expected.end(), once.begin(), once.end());
  EXPECT_EQ(runner_->runs, expected);
  EXPECT_EQ(runner_->workspaces[0], runner_->workspaces[2]);
  EXPECT_EQ(runner_->workspaces[1], runner_->workspaces[3]);
  EXPECT_NE(runner_->workspaces[0], runner_->workspaces[1]);
}

TEST_F(InProcessTest, NamesWhatIsNotThere) {
  make({});
  Candidate stranger = runner_->of("good");
  stranger.runner = "stranger";
  const std::vector<int64_t> rows{0};
  EXPECT_EQ(executor_->check(stranger, 0, rows).error().code, ErrorCode::kNotFound);
  const std::vector<int64_t> outside{4};
  EXPECT_EQ(executor_->check(runner_->of("good"), 0, outside).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(executor_->check(runner_->of("good"), 1, rows).error().code,
            ErrorCode::kInvalidArgument);
  executor_->unload();
  EXPECT_FALSE(executor_->check(runner_->of("good"), 0, rows).ok());
}

TEST(MemoryStore, KeepsRecordsByProblemAndDeviceInOrder) {
  const auto store = make_memory_store();
  MeasurementRecord record;
  record.problem = "p";
  record.device = "d";
  record.what.tokens = 1;
  ASSERT_TRUE(store->put(record).ok());
  record.what.tokens = 2;
  ASSERT_TRUE(store->put(record).ok());
  record.device = "e";
  ASSERT_TRUE(store->put(record).ok());
  const auto found = store->find("p", "d");
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(found->at(1).what.tokens, 2);
  EXPECT_EQ(store->find("q", "d")->size(), 0u);
}

}  // namespace
}  // namespace moetune

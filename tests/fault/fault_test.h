// A helper for the faulty operator, and an executor in it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "fault/operator/faulty_operator.h"
#include "worker/worker_host.h"

namespace moetune::testing {

/// Behaves like `bench`, which must outlive it.
class ForwardingBench : public Workbench {
 public:
  explicit ForwardingBench(Workbench& bench) : bench_(bench) {}
  const Problem& problem() const override { return bench_.problem(); }
  WeightSource& weights(Scale scale) override { return bench_.weights(scale); }
  Result<Tensors> arguments(const Case& c, Scale scale, int sample) override {
    return bench_.arguments(c, scale, sample);
  }
  int outputs() const override { return bench_.outputs(); }
  std::vector<int64_t> check_rows(const Case& c, Scale scale, int sample) override {
    return bench_.check_rows(c, scale, sample);
  }
  Verdict judge(const Case& c, Scale scale, int sample, std::span<const int64_t> rows,
                const Tensors& outputs) override {
    return bench_.judge(c, scale, sample, rows, outputs);
  }
  Work work(const Case& c, Scale scale, int sample) override {
    return bench_.work(c, scale, sample);
  }

 private:
  Workbench& bench_;
};

class FaultTest : public ::testing::Test {
 protected:
  static WorkerPolicy patient() {
    WorkerPolicy policy;
    policy.run_s = policy.first_run_s = policy.compile_s = 60;
    return policy;
  }
  /// Deadlines of `limit_s`.
  static WorkerPolicy impatient(double limit_s) {
    WorkerPolicy policy;
    policy.run_s = policy.first_run_s = policy.compile_s = limit_s;
    policy.run_factor = policy.compile_factor = 0;
    return policy;
  }

  void start(WorkerPolicy policy = patient(),
             std::vector<std::string> command = find_helper_program("moetune-worker-faulty")) {
    executor_.reset();
    auto host = WorkerHost::start({std::move(command), policy});
    ASSERT_TRUE(host.ok()) << host.error().message;
    host_ = *host;
    make_executor(false);
    if (executor_) select();
  }
  void make_executor(bool sends_arguments, Workbench* bench = nullptr) {
    auto made = make_worker_executor(host_, {.problem = bench_->problem(),
                                             .options = {},
                                             .device_key = {},
                                             .bench = bench != nullptr ? bench : bench_.get(),
                                             .sends_arguments = sends_arguments});
    ASSERT_TRUE(made.ok()) << made.error().message;
    executor_ = std::move(made).value();
  }
  void select(int samples = 1) {
    const WeightLayout layout{"faulty.kinds", "plain"};
    Status done = executor_->load({&layout, 1}, Scale::kFull);
    if (done.ok()) done = executor_->select(case_, samples);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }

  Result<CheckOutput> check(std::string_view kind, int sample = 0) {
    return executor_->check(faulty(kind), sample, bench_->check_rows(case_, Scale::kFull, sample));
  }
  Result<std::vector<Sample>> measure(std::string_view kind, int calls = 1) {
    const Candidate candidate = faulty(kind);
    const Candidate* order[] = {&candidate};
    return executor_->measure(order, -1, calls);
  }
  /// What the parent's judge says: empty for right.
  std::string verdict(std::string_view kind, int sample = 0) {
    const auto rows = bench_->check_rows(case_, Scale::kFull, sample);
    const auto output = check(kind, sample);
    if (!output.ok())
      return std::string(to_string(output.error().code)) + ": " + output.error().message;
    if (!output->damage.empty()) return output->damage;
    return bench_->judge(case_, Scale::kFull, sample, rows, output->outputs).reason;
  }

  Case case_{4, "uniform", 7};
  std::unique_ptr<Workbench> bench_ = make_doubling_bench();
  std::shared_ptr<WorkerHost> host_;
  std::unique_ptr<Executor> executor_;
};

/// Seconds that something takes.
template <typename Function>
double seconds_of(Function&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace moetune::testing

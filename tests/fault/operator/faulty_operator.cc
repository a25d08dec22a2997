#include "fault/operator/faulty_operator.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "fault/operator/faults.h"
#include "tuner/virtual_time.h"

namespace moetune::testing {
namespace {

constexpr int64_t kColumns = 16;
constexpr int64_t kMaxTokens = 4096;

class NoWeights final : public WeightSource {
 public:
  int64_t chunks() const override { return 0; }
  Result<Tensors> chunk(int64_t) override { return Tensors{}; }
};

class DoublingBench final : public Workbench {
 public:
  const Problem& problem() const override { return problem_; }
  WeightSource& weights(Scale) override { return weights_; }
  Result<Tensors> arguments(const Case& c, Scale, int sample) override {
    if (c.tokens > kMaxTokens) return Error{ErrorCode::kInvalidArgument, "too many tokens"};
    data_.resize(static_cast<size_t>(c.tokens * kColumns));
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = value(c, sample, i);
    return Tensors{{"x", DataType::kF32, {c.tokens, kColumns}, data_.data()},
                   {"y", DataType::kF32, {c.tokens, kColumns}, nullptr}};
  }
  int outputs() const override { return 1; }
  std::vector<int64_t> check_rows(const Case& c, Scale, int) override {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < c.tokens; ++row) rows.push_back(row);
    return rows;
  }
  Verdict judge(const Case& c, Scale, int sample, std::span<const int64_t> rows,
                const Tensors& outputs) override {
    const auto* y = outputs.at(0).as<const float>();
    for (size_t i = 0; i < rows.size() * kColumns; ++i) {
      const auto row = static_cast<size_t>(rows[i / kColumns]);
      if (!std::isfinite(y[i])) return {false, "not finite"};
      if (y[i] != 2 * value(c, sample, row * kColumns + i % kColumns)) return {false, "not right"};
    }
    return {};
  }
  Work work(const Case&, Scale, int) override { return {}; }

 private:
  static float value(const Case& c, int sample, size_t i) {
    return static_cast<float>(i + static_cast<size_t>(sample) * 100 + c.seed);
  }
  Problem problem_{kFaultyOp, {{"columns", "16"}}};
  NoWeights weights_;
  std::vector<float> data_;
};

class Kernel final : public Executable {
 public:
  Kernel(FaultyDevice& device, const FaultyKind& kind) : device_(device), kind_(kind) {}
  Status run(const Call& call) override {
    const auto status = run_faulty(kind_.name, call, ++runs_, device_);
    device_.spend_us(kind_.us);
    return status;
  }

 private:
  FaultyDevice& device_;
  const FaultyKind& kind_;
  int runs_ = 0;
};

class FaultyRunner final : public TunableRunner {
 public:
  explicit FaultyRunner(FaultyDevice* device) : device_(device) {
    Parameter parameter{"kind", {}, "which kernel"};
    for (const FaultyKind& kind : faulty_kinds()) parameter.values.emplace_back(kind.name);
    schemes_ = {{"single", {{"main", Space({parameter})}}}};
  }

  std::string name() const override { return "faulty.kinds"; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t) const override { return faulty("default"); }
  void prefetch(std::span<const Candidate> candidates) override { announced_ = candidates.size(); }
  bool is_compiled(const Candidate& candidate) const override {
    return candidate.stages.at(0).tactic.word("kind") != "crash";
  }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate, int64_t) override {
    if (announced_ > 0) std::fprintf(stderr, "%zu kernels were announced\n", announced_);
    const std::string_view wanted = candidate.stages.at(0).tactic.word("kind");
    for (const FaultyKind& kind : faulty_kinds()) {
      if (wanted != kind.name || device_ == nullptr) continue;
      compile_faulty(wanted);
      return std::shared_ptr<Executable>(std::make_shared<Kernel>(*device_, kind));
    }
    return Error{ErrorCode::kCompile, "no such kernel"};
  }

 private:
  FaultyDevice* device_;
  size_t announced_ = 0;
  std::vector<Scheme> schemes_;
};

}  // namespace

const std::vector<FaultyKind>& faulty_kinds() {
  static const std::vector<FaultyKind> kinds = {
      {"default", 200},
      {"good", 150},
      {"fast", 100},
      {"crash_in_compile", 10, false},
      {"hang_in_compile", 10, false},
      {"throw_in_compile", 10, false},
      {"crash", 10, false},
      {"abort", 10, false},
      {"exit", 10, false},
      {"hang", 10, false},
      {"throw", 10, false},
      {"memory_hog", 10, false},
      {"closes_files", 10, false},
      {"forks_and_crashes", 10, false},
      {"writes_to_the_socket", 10, false},
      {"loses_the_device", 10, false},
      {"wrong", 10, false},
      {"not_a_number", 10, false},
      {"unwritten", 10, false},
      {"half_written", 10, false},
      {"past_the_end", 10, false},
      {"changes_its_input", 10, false},
      {"wrong_later", 50, false},
      {"zero_time", 0, false},
      {"negative_time", -1, false},
      {"no_time", std::numeric_limits<double>::quiet_NaN(), false},
      {"slow", 5000},
      {"floods", 300},
      {"leaves_a_child", 300},
  };
  return kinds;
}

std::unique_ptr<TunableRunner> make_faulty_runner(FaultyDevice* device) {
  return std::make_unique<FaultyRunner>(device);
}

Candidate faulty(std::string_view kind) {
  return {"faulty.kinds", 1, "single", {{"main", Tactic({{"kind", std::string(kind)}})}}};
}

std::unique_ptr<Workbench> make_doubling_bench() { return std::make_unique<DoublingBench>(); }

}  // namespace moetune::testing

// A world without a device: candidates whose true times are known, seeded noise on them, and a
// clock that moves only when something would take time. Tuning a minute's budget takes milliseconds
// in it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "moetune/autotuner.h"
#include "moetune/measuring.h"

namespace moetune::testing {

/// A runner whose kernels do nothing: only an executor that fakes times uses it.
class FakeRunner final : public TunableRunner {
 public:
  using Default = std::function<Candidate(int64_t tokens)>;

  FakeRunner(std::string name, std::vector<Scheme> schemes, Default make_default)
      : name_(std::move(name)), schemes_(std::move(schemes)), default_(std::move(make_default)) {}

  std::string name() const override { return name_; }
  int version() const override { return version_; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t tokens) const override;
  std::string layout(const Candidate& candidate) const override;
  std::vector<std::string> layouts() const override;
  std::string why_excluded(const Candidate& candidate, int64_t tokens) const override;
  bool is_deterministic(const Candidate& candidate) const override {
    return !deterministic || deterministic(candidate);
  }
  bool has_exact_check() const override { return exactly_checkable; }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate, int64_t) override;

  bool exactly_checkable = true;
  void set_version(int version) { version_ = version; }
  std::function<std::string(const Candidate&)> layout_of;
  std::vector<std::string> all_layouts;  ///< Empty: the default's alone.
  std::function<std::string(const Candidate&, int64_t)> exclude;
  std::function<bool(const Candidate&)> deterministic;

 private:
  std::string name_;
  int version_ = 1;
  std::vector<Scheme> schemes_;
  Default default_;
};

/// One runner, one scheme, one stage with one parameter "kind" of these words; the first is the
/// default.
std::unique_ptr<FakeRunner> runner_with_kinds(const std::vector<std::string>& kinds);
/// The candidate of runner_with_kinds() with that word.
Candidate kind(const TunableRunner& runner, const std::string& word);
/// The word of such a candidate.
std::string kind_of(const Candidate& candidate);

class FakeWorld;

class FakeBench final : public Workbench {
 public:
  explicit FakeBench(FakeWorld& world);
  const Problem& problem() const override { return problem_; }
  WeightSource& weights(Scale scale) override;
  Result<Tensors> arguments(const Case&, Scale, int) override { return Tensors{}; }
  int outputs() const override { return 1; }
  std::vector<int64_t> check_rows(const Case&, Scale, int) override { return {0, 1}; }
  std::vector<int64_t> look_rows(const Case& c, Scale scale, int sample) override;
  Verdict judge(const Case& c, Scale, int, std::span<const int64_t>,
                const Tensors& outputs) override;
  Work work(const Case& c, Scale scale, int sample) override;

 private:
  class Chunks;
  FakeWorld& world_;
  Problem problem_;
  std::shared_ptr<Chunks> full_;
  std::shared_ptr<Chunks> subset_;
};

class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(FakeWorld& world) : world_(world) {}
  Status load(std::span<const WeightLayout> layouts, Scale scale) override;
  Status select(const Case& c, int samples) override;
  int prefetch(std::span<const Candidate> candidates, int64_t tokens) override;
  Result<CheckOutput> check(const Candidate& candidate, int sample,
                            std::span<const int64_t> rows) override;
  Result<std::vector<Sample>> measure(std::span<const Candidate* const> order, int stage,
                                      int calls) override;
  void unload() override { is_loaded_ = false; }

 private:
  double true_us(const Candidate& candidate, int stage) const;

  FakeWorld& world_;
  std::vector<WeightLayout> layouts_;
  Scale scale_ = Scale::kFull;
  Scale packed_scale_ = Scale::kFull;
  bool is_loaded_ = false;
  Case case_;
  int samples_ = 0;
};

class FakeWorld {
 public:
  /// True microseconds of one call; `stage` < 0 is the whole operator.
  using Cost = std::function<double(const Candidate&, int64_t tokens, int stage, Scale scale)>;

  FakeWorld(std::vector<TunableRunner*> runners, std::vector<int64_t> buckets, Cost cost);

  /// A request for this world. Uses its clock.
  TuneRequest request();
  Result<TuneReport> tune();

  // What happens, all of it to be set by tests.
  Cost cost;
  std::function<double(Random&, double now_s)> noise;  ///< Factor on each sample.
  std::function<int(double now_s)> clock_mhz;          ///< 0: unknown.
  std::function<std::string(const Candidate&, const Case&, int times_checked)>
      wrong;                                                   ///< Reason, or right.
  std::function<bool(const Candidate&)> wrong_beyond_a_look;   ///< In rows that only a check shows.
  std::function<Status(const Candidate&, const Case&)> fault;  ///< Fails to compile or run.
  double compile_s = 0;  ///< What compiling took, as the next checks tell; `fault` spends it.
  std::function<double(const Candidate&, const Case&, double us)> lie;  ///< Reported time.
  std::function<void()> on_sample;
  std::function<int(std::span<const Candidate>, bool is_loaded)> on_prefetch;
  int64_t full_chunks = 0;
  int64_t subset_chunks = 0;
  double load_s_per_chunk = 0.01;
  double select_s = 0.001;
  double check_s = 0.0005;  ///< Beside one run.
  double work_bytes_per_token = 1000;
  double subset_factor = 1;  ///< Work on the subset over work in full.

  // What happened.
  double now_s = 1000;
  int samples_taken = 0;
  std::vector<std::string> sampled;  ///< Candidate texts in order of time.
  std::map<std::string, std::vector<int>>
      calls_seen;  ///< By spot text: calls per sample, of every sample.
  std::map<std::string, int> times_checked;
  std::vector<TuneProgress> progress;

  Random random;
  std::vector<TunableRunner*> runners;
  std::vector<int64_t> bucket_sizes;
  FakeBench bench;
  FakeExecutor executor;
  std::unique_ptr<MeasurementStore> store;
  MeasurementPolicy policy;
  double budget_s = 60;
  std::vector<std::string> veto_workloads;
  std::stop_source stop;
};

}  // namespace moetune::testing

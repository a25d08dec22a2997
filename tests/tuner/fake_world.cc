#include "tuner/fake_world.h"

#include <algorithm>
#include <utility>

#include "tuner/tune.h"

namespace moetune::testing {

Candidate FakeRunner::default_candidate(int64_t tokens) const {
  Candidate candidate = default_(tokens);
  candidate.runner_version = version_;
  return candidate;
}

std::string FakeRunner::layout(const Candidate& candidate) const {
  return layout_of ? layout_of(candidate) : "plain";
}

std::vector<std::string> FakeRunner::layouts() const {
  return all_layouts.empty() ? TunableRunner::layouts() : all_layouts;
}

std::string FakeRunner::why_excluded(const Candidate& candidate, int64_t tokens) const {
  return exclude ? exclude(candidate, tokens) : "";
}

Result<std::shared_ptr<Executable>> FakeRunner::compile(const Candidate& candidate, int64_t) {
  return Error{ErrorCode::kUnsupported, candidate.text() + " is only a fake"};
}

std::unique_ptr<FakeRunner> runner_with_kinds(const std::vector<std::string>& kinds) {
  Parameter parameter{"kind", {}, "which kernel"};
  for (const std::string& word : kinds) parameter.values.emplace_back(word);
  std::vector<Scheme> schemes{{"single", {{"main", Space({parameter})}}}};
  const auto make_default = [word = kinds[0]](int64_t) {
    return Candidate{"fake", 1, "single", {{"main", Tactic({{"kind", word}})}}};
  };
  return std::make_unique<FakeRunner>("fake", schemes, make_default);
}

Candidate kind(const TunableRunner& runner, const std::string& word) {
  return {runner.name(), runner.version(), "single", {{"main", Tactic({{"kind", word}})}}};
}

std::string kind_of(const Candidate& candidate) {
  return std::string(candidate.stages[0].tactic.word("kind"));
}

class FakeBench::Chunks final : public WeightSource {
 public:
  explicit Chunks(const int64_t& count) : count_(count) {}
  int64_t chunks() const override { return count_; }
  Result<Tensors> chunk(int64_t) override { return Tensors{}; }

 private:
  const int64_t& count_;
};

FakeBench::FakeBench(FakeWorld& world)
    : world_(world),
      problem_{"fake_op", {{"size", "1"}}},
      full_(std::make_shared<Chunks>(world.full_chunks)),
      subset_(std::make_shared<Chunks>(world.subset_chunks)) {}

WeightSource& FakeBench::weights(Scale scale) { return scale == Scale::kFull ? *full_ : *subset_; }

std::vector<int64_t> FakeBench::look_rows(const Case& c, Scale scale, int sample) {
  if (world_.wrong_beyond_a_look) return {0};
  return check_rows(c, scale, sample);
}

// The executor puts the reason into the output: one byte for right or wrong, then the text.
Verdict FakeBench::judge(const Case&, Scale, int, std::span<const int64_t>,
                         const Tensors& outputs) {
  const std::string reason(outputs[0].as<const char>(), outputs[0].bytes());
  return {reason.empty(), reason};
}

Work FakeBench::work(const Case& c, Scale scale, int) {
  const double factor = scale == Scale::kSubset ? world_.subset_factor : 1;
  const double bytes = factor * world_.work_bytes_per_token * static_cast<double>(c.tokens);
  return {bytes, bytes, 1};
}

Status FakeExecutor::load(std::span<const WeightLayout> layouts, Scale scale) {
  const bool is_packed =
      is_loaded_ && packed_scale_ == Scale::kFull &&
      std::equal(layouts.begin(), layouts.end(), layouts_.begin(), layouts_.end());
  layouts_.assign(layouts.begin(), layouts.end());
  scale_ = scale;
  samples_ = 0;
  if (is_packed) return {};
  is_loaded_ = true;
  packed_scale_ = scale;
  const auto chunks = static_cast<double>(world_.bench.weights(scale).chunks());
  world_.now_s += world_.load_s_per_chunk * chunks * static_cast<double>(layouts.size());
  return {};
}

Status FakeExecutor::select(const Case& c, int samples) {
  if (!is_loaded_) return Error{ErrorCode::kInternal, "select() before load()"};
  case_ = c;
  samples_ = samples;
  world_.now_s += world_.select_s;
  return {};
}

int FakeExecutor::prefetch(std::span<const Candidate> candidates, int64_t /*tokens*/) {
  return world_.on_prefetch ? world_.on_prefetch(candidates, is_loaded_) : 0;
}

double FakeExecutor::true_us(const Candidate& candidate, int stage) const {
  return world_.cost(candidate, case_.tokens, stage, scale_);
}

Result<CheckOutput> FakeExecutor::check(const Candidate& candidate, int sample,
                                        std::span<const int64_t> rows) {
  if (sample >= samples_) return Error{ErrorCode::kInternal, "check() of a sample not selected"};
  if (world_.fault) {
    if (Status status = world_.fault(candidate, case_); !status.ok())
      return std::move(status).error();
  }
  const bool is_loaded =
      std::any_of(layouts_.begin(), layouts_.end(), [&](const WeightLayout& layout) {
        if (layout.runner != candidate.runner) return false;
        for (TunableRunner* runner : world_.runners) {
          if (runner->name() == candidate.runner) return runner->layout(candidate) == layout.layout;
        }
        return false;
      });
  if (!is_loaded) return Error{ErrorCode::kInternal, "the layout is not loaded"};
  world_.now_s += world_.check_s + 1e-6 * true_us(candidate, -1);
  const int times = world_.times_checked[candidate.text()]++;
  std::string reason = world_.wrong ? world_.wrong(candidate, case_, times) : "";
  if (rows.size() > 1 && world_.wrong_beyond_a_look && world_.wrong_beyond_a_look(candidate))
    reason = "wrong in row 1";
  CheckOutput out;
  out.compile_seconds = world_.compile_s;
  const auto* bytes = reinterpret_cast<const std::byte*>(reason.data());
  out.storage.emplace_back(bytes, bytes + reason.size());
  out.outputs.push_back(
      {"output", DataType::kU8, {static_cast<int64_t>(reason.size())}, out.storage[0].data()});
  return out;
}

Result<std::vector<Sample>> FakeExecutor::measure(std::span<const Candidate* const> order,
                                                  int stage, int calls) {
  std::vector<Sample> samples;
  for (const Candidate* candidate : order) {
    if (world_.fault) {
      if (Status status = world_.fault(*candidate, case_); !status.ok())
        return std::move(status).error();
    }
    const double us = true_us(*candidate, stage);
    Sample sample;
    sample.us = us * (world_.noise ? world_.noise(world_.random, world_.now_s) : 1.0);
    if (world_.clock_mhz) {
      sample.state.clock_mhz = world_.clock_mhz(world_.now_s);
      if (sample.state.clock_mhz > 0) sample.us *= 2000.0 / sample.state.clock_mhz;
    }
    // A stage builds on a complete run.
    const double whole_us = stage >= 0 ? true_us(*candidate, -1) * samples_ : 0;
    world_.now_s += 1e-6 * (sample.us * calls + whole_us);
    if (world_.lie) sample.us = world_.lie(*candidate, case_, sample.us);
    ++world_.samples_taken;
    world_.sampled.push_back(candidate->text());
    world_.calls_seen[case_.workload + " " + std::to_string(case_.tokens)].push_back(calls * 1000 +
                                                                                     samples_);
    if (world_.on_sample) world_.on_sample();
    samples.push_back(sample);
  }
  return samples;
}

FakeWorld::FakeWorld(std::vector<TunableRunner*> with, std::vector<int64_t> buckets, Cost with_cost)
    : cost(std::move(with_cost)),
      random(1),
      runners(std::move(with)),
      bucket_sizes(std::move(buckets)),
      bench(*this),
      executor(*this),
      store(make_memory_store()) {}

TuneRequest FakeWorld::request() {
  TuneRequest made{.problem = bench.problem(),
                   .runners = runners,
                   .buckets = Buckets::from(bucket_sizes).value()};
  made.policy = policy;
  made.budget_s = budget_s;
  made.veto_workloads = veto_workloads;
  made.device = {"fake", "Fake", {{"cores", "1"}}, {}};
  made.now_s = [this] { return now_s; };
  made.bench = &bench;
  made.executor = &executor;
  made.store = store.get();
  made.progress = [this](const TuneProgress& p) { progress.push_back(p); };
  made.stop = stop.get_token();
  return made;
}

Result<TuneReport> FakeWorld::tune() { return tune_problem(request()); }

}  // namespace moetune::testing

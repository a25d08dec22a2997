// AutoTuner: tunes problems, publishes plans, answers look-ups.
//
//   AutoTuner tuner(device->properties());
//   auto report = tuner.tune(request);                    // measures, decides, publishes
//   PlanHandle plan = tuner.handle(problem);              // once per layer
//   Lookup hit = plan.find(tokens);                       // every step: no lock, no allocation
//
// or, for one's own operator, in the manner of other tuners:
//
//   { autotune scope(tuner); tuner.choose_one("axpy", runners, config, arguments); }   // tunes
//   what it meets Choice choice = tuner.choose_one("axpy", runners, config, arguments); // looks up
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/measuring.h"
#include "moetune/plan.h"
#include "moetune/profile.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune {

/// Every constant of racing and deciding, with its reason (docs/measurement.md). Change one and
/// show what it does to regret and tuning time.
struct MeasurementPolicy {
  // Sampling.
  double min_sample_us = 200;      ///< A sample is as many calls as fill this: the clock needs it.
  int max_calls_per_sample = 64;   ///< Enough for that from 3 us on; a call under 3 us is noise.
  int routing_samples = 8;         ///< Distinct routings a bucket is measured on, where ...
  double max_rotation_us = 10000;  ///< ... as many fit into this; long calls average by themselves.
  double throttle_ratio = 0.92;    ///< A round with a clock under this times the median is dropped.

  // Racing. Times are compared with the best median so far.
  double drop_after_1 = 3.0;    ///< Out after 1 sample when slower than this times the best.
  double drop_after_3 = 1.5;    ///< Out after 3 when the minimum exceeds this times the best.
  double drop_after_10 = 1.15;  ///< Out after 10 when the median exceeds this times the best.
  double hopeless = 1.3;      ///< Left out in the end when this far behind at a neighbouring size.
  double drop_sigmas = 4;     ///< Out at any time when behind by more than the noise explains.
  int finalists = 8;          ///< At most this many go on after 10.
  int max_race_samples = 30;  ///< Per candidate: further samples no longer change the order.
  double explore_share =
      0.7;             ///< Of a race's time, for first samples; the rest tells the best apart.
  double tie = 0.005;  ///< Within this: incumbent, then fewer resources, then lower text.

  // Deciding.
  double confirm_share =
      0.5;  ///< Of the budget, kept back for confirming, vetoes and interval ends.
  int min_confirm_rounds = 10;   ///< ABBA rounds before an interval means anything; ...
  int least_confirm_rounds = 3;  ///< ... where they are too dear, six pairs that all agree do.
  int max_confirm_rounds = 200;
  double min_confirm_s =
      0.1;  ///< Short samples: go on this long, so that a passing state does not decide.
  double min_gain = 0.01;  ///< A gain under 1 % does not pay for being different.
  double veto_loss =
      0.02;  ///< The most a winner may lose on a veto workload or at an interval's end.
};

/// What happens while tuning, for progress lines and tests. Called on the tuning thread.
struct TuneProgress {
  std::string phase;   ///< "pack", "check", "race", "confirm", "veto", "refine", "done"
  int64_t tokens = 0;  ///< Bucket at work, 0 outside of one.
  int buckets_done = 0;
  int buckets = 0;
  int candidates_left = 0;
  int measurements = 0;
  double elapsed_s = 0;
  double eta_s = 0;  ///< Until the end, as it looks now.
};

/// The most a device can do, by its data sheet: what would need less time than this allows was not
/// measured but mismeasured. 0: not known.
struct DevicePeak {
  double bytes_per_s = 0;
  double operations_per_s = 0;
};

/// One problem to tune. Everything referenced must outlive the call.
struct TuneRequest {
  Problem problem;
  std::span<TunableRunner* const> runners;  ///< Candidate 0 is the first runner's default.
  Buckets buckets;
  std::string workload = "uniform";
  std::vector<std::string> veto_workloads;  ///< {"zipf:1.2"} by default for fused_moe.
  /// Seconds that this problem gets on this device, over all runs that the store knows of. What
  /// earlier runs have spent on the same buckets, traffic and runner versions is taken off; where
  /// nothing is left, what they found decides and nothing is measured.
  double budget_s = 60;
  /// Seconds that a candidate gets at one bucket to be compiled, checked and raced; 0: as many as
  /// it needs. Who takes longer is rejected there, in this run. The default and comparisons with it
  /// are exempt: nothing is decided without them.
  double candidate_budget_s = 0;
  uint64_t seed = 0;
  /// Whether to measure between buckets too: interval ends, and where neighbouring decisions cross.
  /// Without it a decision holds for its bucket's whole interval.
  bool refine_intervals = true;
  /// Only candidates with TunableRunner::is_deterministic() take part.
  bool deterministic = false;
  /// What else narrows what can be measured (a limit on memory, say), in words: earlier runs count
  /// only where theirs were the same.
  std::string limits;
  std::map<int64_t, double>
      weights;  ///< Importance per bucket; empty: all equal. Matters where layouts compete.
  /// Candidates to try first, by bucket: what another tool has found, say. One that does not fit in
  /// its runner's space is left out.
  std::map<int64_t, std::vector<Candidate>> suggestions;
  MeasurementPolicy policy;

  DeviceProperties device;  ///< Of `executor`'s device. AutoTuner fills it in where it is empty.
  DevicePeak peak;
  std::function<double()>
      now_s;  ///< Seconds on any steady clock; empty: std::chrono::steady_clock.

  Workbench* bench = nullptr;
  Executor* executor = nullptr;
  Workbench* exact_bench = nullptr;  ///< Winners must be right bit for bit here too, as far as
                                     ///< their runners have an exact check; null: not checked.
  Executor* exact_executor = nullptr;
  MeasurementStore* store = nullptr;  ///< null: the tuner's own, in memory.
  std::function<void(const TuneProgress&)> progress;
  std::stop_token stop;  ///< Ctrl-C: ends with what is known so far.
};

struct Rejection {
  Candidate candidate;
  int64_t tokens = 0;
  Error error;
};

/// Where the wall-clock time of a run went, in seconds. What is left of the whole is the tuner's
/// own.
struct TuneTimes {
  double pack = 0;     ///< Weights made and brought into layouts.
  double inputs = 0;   ///< Activations and routings made and placed.
  double compile = 0;  ///< Waited for compilers; what they did in the background is not here.
  double check = 0;    ///< Checked runs: poison, run, guards, rows back.
  double judge = 0;    ///< Outputs compared with the reference, the reference included.
  double sample = 0;   ///< Timed runs, with what recording them takes.
  double keep = 0;     ///< Measurements put into the store.
};

struct TuneReport {
  Plan plan;
  std::vector<Rejection> rejected;
  std::vector<std::string> warnings;  ///< What went wrong beside candidates: a store that cannot
                                      ///< write, a bucket that does not fit.
  int measurements = 0;               ///< Samples taken.
  int dropped_rounds = 0;             ///< For throttling.
  double seconds = 0;
  TuneTimes spent;
  bool interrupted = false;      ///< Stopped early; the plan is valid and holds the best so far.
  bool out_of_budget = false;    ///< Some buckets never got to a confirmation.
  double earlier_s = 0;          ///< Of the budget, what earlier runs have spent.
  double finished_budget_s = 0;  ///< The largest budget that one of them came to the end of.
  /// The budget was spent before: decided from what the store knows, and nothing was measured.
  bool from_store = false;
};

struct Lookup {
  /// Null with kDefault and kStale: run the runner's default. Valid as long as the tuner.
  const Decision* decision = nullptr;
  Provenance provenance = Provenance::kDefault;
  /// Static text: "nothing is known of this problem", "results are switched off", ...
  const char* reason = "";
};

struct AutoTunerStatistics {
  std::array<uint64_t, 4> lookups = {};  ///< By Provenance.
  uint64_t tuned_problems = 0;
  uint64_t measurements = 0;
  uint64_t rejected_candidates = 0;
};

class AutoTuner;
struct PlanSlot;

/// One problem's published plan. Cheap to copy; valid as long as its tuner.
class PlanHandle {
 public:
  PlanHandle() = default;
  /// Constant time, no lock, no allocation; any thread.
  Lookup find(int64_t tokens) const noexcept;

 private:
  friend class AutoTuner;
  explicit PlanHandle(PlanSlot* slot) : slot_(slot) {}
  PlanSlot* slot_ = nullptr;
};

struct Choice {
  TunableRunner* runner = nullptr;
  const Candidate* candidate = nullptr;  ///< Valid as long as the tuner.
  Executable* executable = nullptr;      ///< Compiled; owned by the tuner.
  Provenance provenance = Provenance::kDefault;
};

struct AutoTunerOptions {
  /// Only candidates that give the same bits on every run (TunableRunner::is_deterministic()) are
  /// tuned and in force, wherever a plan comes from: what a loaded plan has otherwise is not used,
  /// with that reason, and the default runs. Fixed for the tuner's life, so that no plan of another
  /// mode can be in force.
  bool deterministic = false;
};

/// Thread-safe: look-ups never wait; tune() and load() of one tuner exclude each other.
///
/// Memory: every plan that was ever published stays until the tuner dies, because a look-up may
/// still read it. There is one more with each tune(), load() and validate() that changes something
/// (about 1 KB per decision), and one entry for each set of static shapes that choose_one() meets;
/// look-ups add nothing.
class AutoTuner {
 public:
  explicit AutoTuner(DeviceProperties device, AutoTunerOptions options = {});
  ~AutoTuner();
  AutoTuner(const AutoTuner&) = delete;
  AutoTuner& operator=(const AutoTuner&) = delete;

  const DeviceProperties& device() const;

  /// Measures and decides, publishes the plan, returns it with everything that was seen. Keeps to
  /// the budget (never more than one sample over it). Fails only where there is no valid default to
  /// fall back to, or an argument makes no sense.
  Result<TuneReport> tune(const TuneRequest& request);

  /// Sources in order: tuned here, kUser, kShipped, then a sibling device's plans (kNearest).
  enum class Source : uint8_t { kUser, kShipped };
  /// Takes in a configuration's plans; each is in force once validate() has seen the runners of its
  /// problem. Returns, one text each, what does not match: a sibling device, another toolchain.
  /// kUnsupported where no plan of that device can run here, naming what differs.
  Result<std::vector<std::string>> load(const TunedConfiguration& configuration, Source source);
  /// Checks loaded decisions for a problem against today's runners (the default's first): those
  /// not in their space are dropped with the reason (returned, one text each), another runner
  /// version makes them stale; the default runs instead. Where the default reads another weight
  /// layout than the plan, one such decision drops the whole plan. Called by whoever makes runners
  /// for a problem, before the first look-up counts.
  std::vector<std::string> validate(const Problem& problem,
                                    std::span<TunableRunner* const> runners);

  /// Pins a problem to what a configuration says: its plan is in force from now on and nothing else
  /// is, whatever is loaded, and tune() refuses the problem. kUnsupported, naming each mismatch,
  /// where the configuration is not for this very device (a sibling's is not), has no plan of the
  /// problem, or has one that does not cover 1..max_tokens or that today's runners (the default's
  /// first) cannot follow to the letter; kInvalidArgument while results are switched off. Nothing
  /// is changed then. Sizes above the plan get the default, as always: who pins asks for all that
  /// will be run.
  Status pin(const TunedConfiguration& configuration, const Problem& problem,
             std::span<TunableRunner* const> runners, int64_t max_tokens);

  /// The handle of a problem, known or not: a plan published later appears in it.
  PlanHandle handle(const Problem& problem);
  /// All plans in force, siblings' excepted.
  TunedConfiguration configuration() const;

  /// Turns every result off (true) or on again, at once, for all threads. Starts as MOETUNE_DEFAULT
  /// says.
  void use_defaults(bool on);
  AutoTunerStatistics statistics() const;
  void reset_statistics();

  /// The best runner and candidate for a call of an operator without weights. Inside of an autotune
  /// scope, tunes what is not known yet; outside, only looks up. Falls back to the first runner's
  /// default, whose failure is the only error besides arguments that make no sense. A known shape
  /// costs no allocation. Runners must outlive the tuner.
  ///
  /// Tuning happens in this process on `device`, which nobody else may use meanwhile, at the very
  /// sizes of the call; the decision holds for the bucket that they belong to. `arguments` (inputs,
  /// then `config.outputs` outputs, in memory of `device`) are copied and never written to. The
  /// default's outputs are the reference: integers and packed types must agree bit for bit;
  /// floating-point outputs in each row (of the outermost dimension, the same in all outputs) to a
  /// relative RMS of 1e-4 for f32 and 5e-3 for f16 and bf16.
  Result<Choice> choose_one(std::string_view op, std::span<TunableRunner* const> runners,
                            const TuningConfig& config, const Tensors& arguments, Device& device);

 private:
  friend class autotune;
  friend class PlanHandle;
  struct State;
  std::unique_ptr<State> state_;
};

/// While it lives, choose_one() on this thread tunes unknown shapes with these options. Scopes
/// nest: the inner one's options hold until it ends, however it ends. Made and destroyed on one
/// thread, in the order of a stack.
class autotune {  // NOLINT: the name users of such tuners know
 public:
  struct Options {
    double budget_s = 5;                          ///< Per problem and bucket.
    std::set<std::string, std::less<>> skip_ops;  ///< Never tuned and never remembered.
    MeasurementPolicy policy;
    std::function<double()> now_s = {};  ///< As TuneRequest::now_s.
  };
  explicit autotune(AutoTuner& tuner);
  autotune(AutoTuner& tuner, Options options);
  ~autotune();
  autotune(const autotune&) = delete;
  autotune& operator=(const autotune&) = delete;

 private:
  friend class AutoTuner;
  /// Of the innermost scope of that tuner on this thread; null: there is none.
  static const Options* options_for(const AutoTuner& tuner);
  /// No scope on this thread while it lives: an operator that is being tuned, and itself calls
  /// choose_one(), looks up and does not tune.
  class Pause;

  AutoTuner& tuner_;
  const autotune* outer_;
  Options options_;
};

/// Where tuned configurations are kept: $MOETUNE_CONFIG, else
/// $XDG_CACHE_HOME/moetune/tuned-<device>.json (~/.cache where unset); "" where HOME is unset too.
std::string get_config_path(const DeviceProperties& device);

}  // namespace moetune

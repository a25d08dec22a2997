// What the tuner asks for while it measures: a device to time on, a workbench that makes data and
// knows what is right, an executor that runs candidates (in this process or another), and a store
// for what was seen. Small interfaces, so that each can be replaced and faked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moetune/plan.h"
#include "moetune/result.h"
#include "moetune/runner.h"

namespace moetune {

// ---- Device
// -----------------------------------------------------------------------------------------------------------------------------

/// Device memory. Released by the destructor.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
};

/// The state a sample was taken in, as far as the device tells. Zero: unknown.
struct DeviceState {
  int clock_mhz = 0;
  uint64_t throttle_reasons = 0;
  int temperature_c = 0;
  double power_w = 0;
};

/// A fixed sequence of calls made ready to be timed: a loop on CPU, an instantiated graph on GPU.
class TimedSequence {
 public:
  virtual ~TimedSequence() = default;
  /// Runs the sequence `repetitions` times and returns microseconds per call. kRun where a call
  /// fails; kMeasurement for a time <= 0.
  virtual Result<double> sample_us(int repetitions) = 0;
};

/// One device, used by one thread at a time.
class Device {
 public:
  using DeviceCall = std::function<Status(void* stream)>;

  virtual ~Device() = default;
  virtual const DeviceProperties& properties() const = 0;
  /// 256-byte aligned. kOutOfMemory where it does not fit.
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) = 0;
  virtual Status upload(void* device, const void* host, size_t bytes) = 0;
  virtual Status download(void* host, const void* device, size_t bytes) = 0;
  virtual Status fill(void* device, uint8_t byte, size_t bytes) = 0;
  /// Runs one call to its end. Errors of the device come back here, sticky ones as kRun with the
  /// device's own words.
  virtual Status run(const DeviceCall& call) = 0;
  virtual Result<std::unique_ptr<TimedSequence>> record(std::vector<DeviceCall> calls) = 0;
  virtual DeviceState state() = 0;
  /// Bytes of the largest cache that weights could stay in between two calls.
  virtual size_t last_level_cache_bytes() const = 0;
  virtual size_t free_memory_bytes() = 0;
};

// ---- Workbench
// --------------------------------------------------------------------------------------------------------------------------

/// What is measured: a bucket with its traffic. `sample` numbers routing samples; all candidates of
/// a bucket see the same ones in the same order.
struct Case {
  int64_t tokens = 0;
  std::string workload = "uniform";
  uint64_t seed = 0;
  bool operator==(const Case&) const = default;
};

/// How much of the problem is held in memory: everything, or as many chunks of weights as exceed
/// three times the last-level cache, with the load per chunk kept as in the whole (fewer tokens
/// over fewer experts).
enum class Scale : uint8_t { kFull, kSubset };

/// The least a device must do for one call.
struct Work {
  double bytes = 0;            ///< Read or written at least once, weights touched and activations.
  double operations = 0;       ///< Multiplications and additions.
  int64_t touched_chunks = 0;  ///< Experts with at least one token.
};

struct Verdict {
  bool ok = true;
  std::string reason;  ///< "row 17: not finite at column 3", ... Empty where ok.
};

/// The operator's side of tuning. Everything it makes follows from (problem, case, sample): a
/// helper process makes the same bits.
class Workbench {
 public:
  virtual ~Workbench() = default;
  virtual const Problem& problem() const = 0;
  /// Weights at a scale; the reference stays valid as long as the bench does.
  virtual WeightSource& weights(Scale scale) = 0;
  /// Inputs of one call in host memory, then outputs with null data, in the operator's order. Valid
  /// until the next call of this function.
  virtual Result<Tensors> arguments(const Case& c, Scale scale, int sample) = 0;
  /// How many of the arguments, counted from the end, are outputs.
  virtual int outputs() const = 0;
  /// Rows (positions in the outermost dimension of the outputs) that judge() wants to see.
  virtual std::vector<int64_t> check_rows(const Case& c, Scale scale, int sample) = 0;
  /// Fewer of them, which show nearly every fault: for candidates that are only looked at, and
  /// judged by all rows before one is chosen.
  virtual std::vector<int64_t> look_rows(const Case& c, Scale scale, int sample) {
    return check_rows(c, scale, sample);
  }
  /// Judges the outputs of a call: `rows` as check_rows() or look_rows() gave them, `outputs`
  /// holding just those rows, one after the other.
  virtual Verdict judge(const Case& c, Scale scale, int sample, std::span<const int64_t> rows,
                        const Tensors& outputs) = 0;
  virtual Work work(const Case& c, Scale scale, int sample) = 0;
};

// ---- Executor
// ---------------------------------------------------------------------------------------------------------------------------

/// What came back from one checked run.
struct CheckOutput {
  Tensors outputs;  ///< Only the rows asked for. Data points into `storage`.
  std::vector<std::vector<std::byte>> storage;
  std::string damage;  ///< Guard band or input that was written to: "wrote past the end of output".
                       ///< Empty: none.
  double compile_seconds = 0;
};

struct Sample {
  double us = 0;
  DeviceState state;
};

/// One way of one runner to hold the weights. Two runners' layouts are never the same, whatever
/// their names.
struct WeightLayout {
  std::string runner;
  std::string layout;
  bool operator==(const WeightLayout&) const = default;
};

/// Where candidates run. Not thread-safe. Every method may fail with kDeadline or kInterrupted; a
/// failure names the candidate and leaves the executor usable for the next one.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Packs the weights in each of these layouts at a scale, dropping first what was packed and
  /// selected before. Keeps what is packed where the same layouts are there at kFull: all weights
  /// serve a part of the traffic too.
  virtual Status load(std::span<const WeightLayout> layouts, Scale scale) = 0;
  /// Sets the bucket and its traffic at the loaded scale: makes and places inputs for `samples`
  /// routing samples. Every candidate from now on sees these.
  virtual Status select(const Case& c, int samples) = 0;
  /// A hint that these will be checked soon at that many tokens, the first first: compiling may
  /// begin in the background. Replaces earlier hints, waits for no
  /// compiler, never fails. The position of the first that check() would not have to compile, as
  /// far as is known; -1: all would be.
  virtual int prefetch(std::span<const Candidate> candidates, int64_t tokens) {
    (void)candidates, (void)tokens;
    return 0;
  }
  /// Compiles if need be, poisons outputs, runs once on routing sample `sample`, checks guards and
  /// inputs, brings rows back.
  virtual Result<CheckOutput> check(const Candidate& candidate, int sample,
                                    std::span<const int64_t> rows) = 0;
  /// One sample per entry of `order`, one after the other. Every sample makes the same calls: call
  /// i is on routing sample i modulo the number selected, so that no candidate meets other traffic
  /// than its rivals. `stage` >= 0 times that stage alone; < 0 the whole operator. `calls` per
  /// sample is the same for all candidates of a bucket.
  virtual Result<std::vector<Sample>> measure(std::span<const Candidate* const> order, int stage,
                                              int calls) = 0;
  /// Frees everything on the device.
  virtual void unload() = 0;
};

// ---- MeasurementStore
// -------------------------------------------------------------------------------------------------------------------

/// A candidate against another one (the default, as a rule), in the same rounds.
struct Comparison {
  std::string against;      ///< Candidate text of the other one.
  int against_version = 0;  ///< Its runner's version.
  TimeSummary against_time;
  double speedup = 1;  ///< Paired: its time over the candidate's.
  double low = 1;      ///< The interval of the speedup (docs/measurement.md).
  double high = 1;
  int rounds = 0;
  std::string outcome;  ///< "better", "not_better", "no_loss", "loss"; "unresolved" where time or
                        ///< rounds ran out.
};

/// One candidate in one place. A later record of the same candidate, version, case, scale, stage
/// and phase replaces an earlier one: a race puts its summary down again as samples come in.
struct MeasurementRecord {
  std::string problem;  ///< Problem::key()
  std::string device;   ///< DeviceProperties::key()
  Candidate candidate;
  std::string layout;
  Case what;
  Scale scale = Scale::kFull;
  int stage = -1;
  TimeSummary time;      ///< samples == 0 where it was rejected before it was timed.
  std::string rejected;  ///< Reason, or empty.
  ErrorCode rejected_as =
      ErrorCode::kInternal;  ///< Its kind; means nothing where `rejected` is empty.
  DeviceState state;         ///< Of the last sample.
  std::string phase;         ///< "check", "race", "settled" (a race's winner: all was explored),
                             ///< "confirm", "veto", "interval", "verify", "exact", "bench"
  std::optional<Comparison> versus;  ///< With "confirm", "veto" and "interval".
  int64_t unix_ms = 0;
};

/// One tuning run: what it was asked for, how long it took, and the plan it ended with.
struct TuneRun {
  int64_t id = 0;  ///< Drawn at random, > 0. A later record of the same id replaces an earlier.
  std::string problem;          ///< Problem::key()
  std::string device;           ///< DeviceProperties::key()
  DeviceProperties properties;  ///< Of that device. A store need not give them back.
  std::string workload = "uniform";
  uint64_t seed = 0;
  std::string terms;                 ///< What else decides what is measured, for comparing.
  std::vector<std::string> runners;  ///< "cpu.packed@3", in alphabetical order.
  std::vector<int64_t> buckets;      ///< Ascending.
  double seconds = 0;                ///< Spent, as far as the run has come.
  /// The budget that the run came to the end of, counted over runs: with this budget or a smaller
  /// one nothing is left to measure. 0: it was cut short, or goes on.
  double budget_s = 0;
  std::optional<Plan> plan;  ///< None while it goes on, or where it was killed.
  int64_t unix_ms = 0;       ///< When it began.
};

/// Keeps measurements and what taking them cost. Implementations are thread-safe; what is put is
/// found at once, and is durable as far as the store is and as soon as it says.
class MeasurementStore {
 public:
  virtual ~MeasurementStore() = default;
  virtual Status put(const MeasurementRecord& record) = 0;
  /// Everything known of a problem on a device, oldest first.
  virtual Result<std::vector<MeasurementRecord>> find(const std::string& problem,
                                                      const std::string& device) = 0;

  /// Runs, twice a second as they go on (from a thread of the tuner's, too, while a step takes
  /// long) and once at their end. A store that keeps none makes every run begin with its whole
  /// budget.
  virtual Status put_run(const TuneRun& run) {
    (void)run;
    return {};
  }
  /// The runs of a problem on a device; those with a plan last, in the order in which they ended.
  virtual Result<std::vector<TuneRun>> find_runs(const std::string& problem,
                                                 const std::string& device) {
    (void)problem, (void)device;
    return std::vector<TuneRun>{};
  }
};

/// A store that lives as long as the process.
std::unique_ptr<MeasurementStore> make_memory_store();

/// Runs candidates in this process, on this device: for runners that are trusted not to crash.
/// Everything referenced must outlive it. What a runner throws comes back as an error that names
/// the candidate.
std::unique_ptr<Executor> make_in_process_executor(Device& device, Workbench& bench,
                                                   std::vector<TunableRunner*> runners);

}  // namespace moetune

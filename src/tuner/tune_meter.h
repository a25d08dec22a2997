// The one way in which the tuner measures: it points the executor, checks before it times, refuses
// times that cannot be true, watches the clock and the budget, and remembers.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "moetune/autotuner.h"
#include "moetune/measuring.h"
#include "tuner/paired_test.h"
#include "tuner/run_account.h"
#include "tuner/tune_known.h"

namespace moetune {

/// A call or sample that takes longer is dear: a few dozen of them are a second, so it is measured
/// on a part of the layer where that stands for the whole, and not for the order among likely ones.
inline constexpr double kDearUs = 20000;

/// How a spot is sampled, the same for all candidates there.
struct Setting {
  double fallback_us = 0;  ///< One call of the default, as first measured.
  int routings = 1;        ///< Routing samples that a sample rotates over.
  int calls = 1;           ///< Per sample.
};

/// The settings that make samples long enough to be timed and short enough to be many.
Setting setting_for(const MeasurementPolicy& policy, double fallback_us);

/// Tells whether clocks stay near what is usual.
class ClockWatch {
 public:
  explicit ClockWatch(double ratio) : ratio_(ratio) {}
  /// Whether one sample of this round ran at a clock below `ratio` times the median of all so far,
  /// this round included. Unknown clocks never do.
  bool throttled(std::span<const DeviceState> round);

 private:
  double ratio_;
  std::vector<double> clocks_;
};

/// Failures: kInterrupted means that there is no time left, the user stopped, or the place itself
/// failed (report().warnings says so): nobody's fault. Everything else is the candidate's, and
/// reject() is to be told.
class Meter {
 public:
  /// Everything must outlive the meter. The clock starts here. Without `account` nothing is
  /// measured: all that asks for it ends as if time were up, and what is known decides.
  Meter(const TuneRequest& request, Known& known, RunAccount* account, TuneReport& report);

  // ---- Time ----
  double elapsed_s() const { return now_() - start_s_; }
  /// Until `deadline_s` after the start or the end of the budget, whichever is first; <= 0: no
  /// more.
  double left_s(double deadline_s) const;
  /// Whether to stop: asked to, or out of time.
  bool over(double deadline_s) const { return stopped() || left_s(deadline_s) <= 0; }
  bool stopped() const { return request_.stop.stop_requested(); }
  /// Where over(): "interrupted" or "budget spent".
  const char* why_over() const { return stopped() ? "interrupted" : "budget spent"; }

  /// Whether there is anything to measure with; false: only what is known counts.
  bool may_measure() const { return account_ != nullptr; }

  // ---- Place ----
  /// The layouts that measuring needs from now on. Packs when something is measured, not before.
  void use_layouts(std::vector<WeightLayout> layouts) { layouts_ = std::move(layouts); }
  /// Frees the device.
  void unload();
  /// Whether another run, with more memory say, may measure what had no place in this one.
  bool lacked_room() const { return lacked_room_ || !broken_places_.empty(); }
  /// How to sample at a spot. From `expected_us`, the default's time to within a factor of two or
  /// so; 0: from what is known, or else from measuring the default once.
  Result<Setting> setting(const Spot& spot, const Candidate& fallback, double expected_us = 0);

  // ---- Candidates ----
  /// Runs the candidate on `routing` and judges it, unless it passed that check here already.
  /// `phase` is "look" before timing, where fewer rows will do; "check" before a comparison that
  /// decides, "verify" after it.
  Status check(const Candidate& candidate, const Spot& spot, const std::string& phase,
               int routing = 0);
  /// Whether it passed a check of all rows there.
  bool has_passed(const Candidate& candidate, const Spot& spot) const;
  /// Checks of all rows that it passed there are to be made again.
  void forget_check(const Candidate& candidate, const Spot& spot);
  /// The same, except that where calls are dear a candidate that was right at another spot in this
  /// run may go ahead: for times that decide nothing by themselves.
  Status check_before_exploring(const Candidate& candidate, const Spot& spot);
  /// Says which candidates are likely to be checked next, so that compiling them may begin. Which
  /// of them is the first that needs none; -1: none of them.
  int prefetch(std::span<const Candidate> candidates, const Spot& spot) {
    const int first = request_.executor->prefetch(candidates, spot.what.tokens);
    compiles_ = compiles_ || (first != 0 && !candidates.empty());
    return first;
  }
  /// Whether there was ever something that had to be compiled first.
  bool compiles() const { return compiles_; }
  /// One sample of a checked candidate at a spot whose setting is known. `stage` < 0: the whole
  /// operator.
  Result<Sample> sample(const Candidate& candidate, const Spot& spot, int stage);
  /// Whether it was rejected here or everywhere, in this run or an earlier one.
  bool is_out(const Candidate& candidate, const Spot& spot) const {
    return known_.rejected(candidate, spot) != nullptr;
  }
  /// Seconds that candidates have taken so far, of compiling, checked runs and samples.
  double worked_s() const {
    const TuneTimes& spent = report_.spent;
    return spent.compile + spent.check + spent.sample;
  }
  /// Of these, the last `seconds` were this candidate's, in a race at that bucket. kDeadline where
  /// it has taken more than its own budget by now.
  Status charge(const Candidate& candidate, const Spot& spot, double seconds);
  /// Notes why a candidate is out.
  void reject(const Candidate& candidate, const Spot& spot, const Error& error,
              const std::string& phase);

  // ---- Knowledge ----
  /// Comparisons of this run, by who, whom, where and why: one that time cut short can go on.
  std::map<std::string, PairedTest>& duels() { return duels_; }
  Known& known() { return known_; }
  TuneReport& report() { return report_; }
  const TuneRequest& request() const { return request_; }
  const MeasurementPolicy& policy() const { return request_.policy; }
  ClockWatch& clocks() { return clocks_; }
  const std::string& layout_of(const Candidate& candidate);
  void put_time(const Candidate& candidate, const Spot& spot, int stage, const TimeSummary& time,
                const DeviceState& state);
  /// Notes that a race explored all that it meant to, and who won.
  void put_settled(const Candidate& winner, const Spot& spot, int stage);

  // ---- Progress ----
  /// Sets what is going on; reports it at once.
  void begin(const std::string& phase, int64_t tokens, int candidates_left);
  void set_candidates_left(int count) { progress_.candidates_left = count; }
  /// That were told of at once so far.
  int most_candidates() const { return most_candidates_; }
  void set_buckets_done(int count) { progress_.buckets_done = count; }
  /// Says when the run will have ended, in seconds after the start, whenever progress is told.
  void forecast_with(std::function<double()> end_s) { forecast_ = std::move(end_s); }

 private:
  Status aim(const Spot& spot, int routings);
  Status load(Scale scale);
  /// kInterrupted with a warning: the place is unusable, no candidate is to blame.
  Error place_failed(const Spot& spot, const Error& error);
  double floor_us(const Spot& spot, const Setting& setting);
  void tell(bool at_once);

  const TuneRequest& request_;
  Known& known_;
  RunAccount* account_;
  TuneReport& report_;
  std::function<double()> now_;
  double start_s_;
  ClockWatch clocks_;

  std::vector<WeightLayout> layouts_;
  std::vector<WeightLayout> loaded_;
  Scale loaded_scale_ = Scale::kFull;
  bool is_loaded_ = false;
  bool holds_all_ = false;  // The weights of all chunks are packed in layouts loaded_.
  double load_s_per_chunk_ = 0;
  std::string aimed_at_;
  std::map<std::string, PairedTest> duels_;
  std::map<std::string, Setting> settings_;
  std::map<std::string, double> floors_us_;
  std::set<std::string> broken_places_;
  bool lacked_room_ = false;  // Some candidate did.
  bool compiles_ = false;
  std::set<std::string> passed_;
  std::set<std::string> passed_somewhere_;
  std::map<std::string, double> charged_s_;  // By candidate and bucket.
  std::map<std::string, std::string> layout_names_;

  TuneProgress progress_;
  double told_s_ = 0;
  int most_candidates_ = 0;
  std::function<double()> forecast_;
};

}  // namespace moetune

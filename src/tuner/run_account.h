// What tuning costs, counted over runs: a budget is what a problem gets on a device, not what each
// run may take. A run reads here what earlier ones spent, and puts down what it spends as it goes,
// so that one that is killed has counted too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "moetune/autotuner.h"
#include "moetune/measuring.h"

namespace moetune {

/// note() to end() are called by the tuning thread. A thread of the account's beats while a step
/// takes long, unless the request has a clock of its own.
class RunAccount {
 public:
  /// Reads what the store has. Both must outlive it.
  RunAccount(MeasurementStore& store, const TuneRequest& request);
  ~RunAccount();
  RunAccount(const RunAccount&) = delete;
  RunAccount& operator=(const RunAccount&) = delete;

  /// Seconds that earlier runs spent on what is asked for now: of those with the same traffic and
  /// terms whose buckets include all of now's. Where runner versions differ, the share that the
  /// common ones make of all that took part then or take part now: each runner has an equal claim
  /// to the budget, and a changed or new one still has its own.
  double earlier_s() const { return earlier_s_; }
  /// The largest budget that one of these very runners' runs came to the end of; 0: there is none.
  double finished_budget_s() const { return finished_budget_s_; }
  /// Whether so little is left that another run could not even begin.
  bool is_spent() const;
  /// The plan of an earlier run of these very runners that came to the end of this budget or a
  /// larger one, cut to the largest of now's buckets. Where there are several, of the one with the
  /// largest budget, which ended last.
  std::optional<Plan> finished_plan() const;

  /// This run has come so far, and begins a step. Put down when the last time was half a second
  /// ago.
  void note(double seconds);
  /// The step goes on, `passed_s` after it was noted: a compiler or a kernel may take minutes, of
  /// which a kill is not to lose more than the last second.
  void beat(double passed_s);
  /// It is over. `is_finished`: it was not cut short, and found nothing more to do within the
  /// budget.
  void end(const Plan& plan, double seconds, bool is_finished);

  /// Why the store could not be read or written, the first time it happened; empty: all is well.
  /// Before the first note(), or after end().
  const std::string& trouble() const { return trouble_; }

 private:
  /// How much of an earlier run counts, in [0, 1].
  double share_of(const TuneRun& earlier) const;
  void put_if_due(double seconds);
  void put();
  void beat_until(const std::stop_token& stop);
  void stop_beating();

  MeasurementStore& store_;
  const TuneRequest& request_;
  std::mutex mutex_;  // Of what the two threads share, down to put_at_s_ and trouble_.
  TuneRun run_;       // This one.
  double noted_s_ = -1;
  std::chrono::steady_clock::time_point noted_at_;
  double put_at_s_ = -1;
  double earlier_s_ = 0;
  double finished_budget_s_ = 0;
  std::optional<TuneRun> finished_;
  std::string trouble_;
  std::condition_variable_any changed_;
  std::jthread heart_;
};

}  // namespace moetune

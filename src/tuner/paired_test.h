// The statistics of comparing two candidates: when paired times show a gain, or that there is no
// loss. docs/measurement.md has the rates of error that simulation finds.
#pragma once

#include <optional>
#include <vector>

#include "base/statistics.h"
#include "moetune/autotuner.h"

namespace moetune {

enum class Goal : uint8_t {
  kGain,    ///< Shown to be faster by the policy's min_gain.
  kNoLoss,  ///< Shown not to be slower by more than the policy's veto_loss.
};

enum class Outcome : uint8_t {
  kBetter,      ///< kGain: reached.
  kNotBetter,   ///< kGain: shown not to be reachable; the other one is right to stay.
  kNoLoss,      ///< kNoLoss: reached.
  kLoss,        ///< kNoLoss: not reached.
  kUnresolved,  ///< Neither was shown before rounds or time ran out.
};

const char* to_string(Outcome outcome);

/// One comparison, apart from how times are come by.
class PairedTest {
 public:
  /// `is_dear`: the rounds that the policy asks for will not be affordable, so the first look comes
  /// early.
  /// The policy must outlive the test.
  PairedTest(Goal goal, const MeasurementPolicy& policy, bool is_dear = false)
      : goal_(goal), policy_(&policy), is_dear_(is_dear) {}

  /// One ABBA round: the fallback's first time, the challenger's two, the fallback's second.
  void add_round(double fallback1, double challenger1, double challenger2, double fallback2);

  /// The fewest rounds after which something may be shown.
  int first_look() const;
  /// The rounds after which nothing more is asked.
  int max_rounds() const;
  int rounds() const { return static_cast<int>(fallback_.size() / 2); }
  /// What is shown after the rounds so far; nothing between looks.
  std::optional<Outcome> look() const;
  /// What to conclude when there will be no more rounds.
  Outcome last_look() const;
  /// The challenger's speedup over the fallback with the interval that the looks so far allow.
  Estimate speedup() const;

  const std::vector<double>& fallback_us() const { return fallback_; }
  const std::vector<double>& challenger_us() const { return challenger_; }

 private:
  bool never_slower() const;
  std::optional<Outcome> look_for_gain() const;
  std::optional<Outcome> look_for_no_loss() const;

  Goal goal_;
  const MeasurementPolicy* policy_;
  bool is_dear_;
  std::vector<double> fallback_;
  std::vector<double> challenger_;
};

}  // namespace moetune

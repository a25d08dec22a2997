// What is known of one problem on one device: the store's content, indexed, and the way in which
// new knowledge gets there.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "moetune/measuring.h"

namespace moetune {

/// The phase of a rejection for a candidate's own budget (TuneRequest::candidate_budget_s): it
/// holds in the run that gave that budget.
inline constexpr const char* kOwnBudgetPhase = "budget";

/// Milliseconds since 1970, as records have it.
int64_t unix_ms_now();

/// Where something is measured: a case, at a scale.
struct Spot {
  Case what;
  Scale scale = Scale::kFull;
  bool operator==(const Spot&) const = default;
  std::string text() const;
};

/// What a candidate is known by: text and version.
std::string identity(const Candidate& candidate);

class Known {
 public:
  /// Reads what the store has. A store that cannot be read is as good as an empty one; `trouble()`
  /// then says why.
  Known(MeasurementStore& store, std::string problem, std::string device);

  /// A candidate's time in a race, stage < 0 the whole operator; nullptr where it was never timed
  /// there.
  const MeasurementRecord* timed(const Candidate& candidate, const Spot& spot, int stage) const;
  /// Whether a race that it won there explored all that it meant to.
  bool settled(const Candidate& candidate, const Spot& spot, int stage) const;
  /// Why it is out, at this spot or everywhere; nullptr where it is not.
  const MeasurementRecord* rejected(const Candidate& candidate, const Spot& spot) const;
  /// Whether a check of that phase was passed here.
  bool passed(const Candidate& candidate, const Spot& spot, const std::string& phase) const;
  /// The last comparison of a candidate with another one in that phase, unresolved or not; nullptr
  /// where there is none.
  const MeasurementRecord* compared(const Candidate& candidate, const Candidate& against,
                                    const Spot& spot, const std::string& phase) const;

  /// Completes the record (problem, device, time) and puts it into the store and the index.
  void put(MeasurementRecord record);

  /// Seconds that putting has taken so far.
  double put_s() const { return put_s_; }

  /// Why the store could not be read or written, the first time it happened; empty: all is well.
  const std::string& trouble() const { return trouble_; }

 private:
  void index(MeasurementRecord record);

  MeasurementStore& store_;
  std::string problem_;
  std::string device_;
  std::string trouble_;
  double put_s_ = 0;
  std::map<std::string, MeasurementRecord> records_;     // by identity, spot, stage and phase
  std::map<std::string, MeasurementRecord> rejections_;  // by identity, or identity and spot
};

/// Whether what went wrong says something of the candidate at every size: memory and deadlines
/// depend on the size, a wrong result does not.
bool holds_everywhere(ErrorCode code);

}  // namespace moetune

// Which candidate a race tries next: what is known to run well nearby, what a model of the
// parameters' effects takes for the fastest, neighbours of the best so far, points from anywhere.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "moetune/autotuner.h"
#include "tuner/effects.h"
#include "tuner/race.h"

namespace moetune {

/// The fastest with a time that is not rejected; null: none has one.
const Contender* best_of(const std::vector<Contender>& contenders);

class Exploration {
 public:
  /// Both must outlive it; the contenders stay where they are, whatever becomes of their states and
  /// times. `has_model`: they are points of one space.
  Exploration(const std::vector<Contender>& contenders, const MeasurementPolicy& policy,
              bool has_model)
      : contenders_(contenders), policy_(policy), has_model_(has_model) {}

  /// Takes in what was tried since. Before any of the others.
  void update();
  /// The try of that number, given what is taken beside what does not wait; -1: nothing waits.
  int next(int step, const std::vector<bool>& taken) const;
  /// Whether no neighbour of the best waits, and nothing that ran nearly as well as the best
  /// nearby.
  bool nothing_likely_waits() const;

 private:
  void find_neighbours();
  void predict();
  int best_expected(const std::vector<bool>& taken) const;
  int best_predicted(const std::vector<bool>& taken) const;
  int neighbour_of_best(const std::vector<bool>& taken) const;
  int far_off(int step, const std::vector<bool>& taken) const;
  bool waits(size_t index, const std::vector<bool>& taken) const {
    return contenders_[index].state == Contender::State::kWaiting && !taken[index];
  }

  const std::vector<Contender>& contenders_;
  const MeasurementPolicy& policy_;
  bool has_model_;
  const Contender* neighbours_of_ = nullptr;  // The best so far, ...
  std::vector<size_t> neighbours_;            // ... and who differs from it in one parameter.
  std::optional<Effects> effects_;
  std::vector<double> predicted_us_;  // Empty: nothing to tell from yet.
};

}  // namespace moetune

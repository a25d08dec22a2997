// What each value of each parameter does to the time, as far as tries tell: an additive model of
// the logarithm of the time, by weighted ridge regression. Parameters interact, so that it says
// where to try next and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moetune/plan.h"

namespace moetune {

class Effects {
 public:
  struct Try {
    size_t point = 0;
    double us = 0;
    double weight = 1;
  };

  /// The candidates that it is about, which are points from here on. They have the same stages.
  explicit Effects(std::span<const Candidate* const> points);

  /// Values of all parameters together: fitting takes the third power of that.
  size_t values() const { return values_; }

  /// Fits anew. The slower a try is beside the fastest, the less it counts: how the bad ones differ
  /// does not matter. At least one try; times > 0.
  void fit(std::span<const Try> tries);

  /// The time expected at a point. After fit().
  double us(size_t point) const;

 private:
  double log_us(size_t point) const;

  size_t parameters_ = 0;           // Of each point.
  size_t values_ = 0;               // Of all parameters together.
  std::vector<uint32_t> value_of_;  // [point][parameter]: which of them.
  std::vector<double> effects_;     // [values_ + 1]: the last is what all have in common.
};

}  // namespace moetune

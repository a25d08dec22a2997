// The answers of one plan, made for being asked every step of every layer: immutable, no lock, no
// allocation.
//
// Intervals are few (one to three per power of two), so the width of the number in bits leads to
// within one or two comparisons of the right one, whatever the number of intervals is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "moetune/autotuner.h"

namespace moetune {

class LookupTable {
 public:
  struct Interval {
    int64_t to = 0;  ///< Begins where the one before ended.
    Lookup answer;
    bool settled = false;  ///< Measured here: tuning it again would bring nothing.
  };

  /// At least one interval, ascending, each at least one long; the first begins at 1.
  explicit LookupTable(const std::vector<Interval>& intervals);

  int64_t maximum() const { return to_.back(); }
  size_t size() const { return to_.size(); }

  /// The interval of 1 <= tokens <= maximum().
  size_t index(int64_t tokens) const noexcept;
  const Lookup& answer(size_t index) const { return answers_[index]; }
  bool settled(size_t index) const { return settled_[index]; }
  int64_t from(size_t index) const { return index == 0 ? 1 : to_[index - 1] + 1; }
  int64_t to(size_t index) const { return to_[index]; }

  /// The answer for any number of tokens.
  const Lookup& find(int64_t tokens) const noexcept;

 private:
  static constexpr size_t kWidths = 64;  ///< Bits of a positive int64_t, and zero.

  std::vector<int64_t> to_;
  std::vector<Lookup> answers_;
  std::vector<bool> settled_;
  /// By width in bits: the intervals of the least and of the largest number of that width.
  std::array<uint32_t, kWidths> first_{};
  std::array<uint32_t, kWidths> last_{};
};

/// Answers that no plan gives. The texts are what users read.
inline constexpr Lookup kNothingKnown{nullptr, Provenance::kDefault,
                                      "nothing is known of this problem"};
inline constexpr Lookup kSwitchedOff{nullptr, Provenance::kDefault,
                                     "tuning results are switched off"};
inline constexpr Lookup kOutsideOfPlan{nullptr, Provenance::kDefault,
                                       "outside of the sizes that were tuned"};

}  // namespace moetune

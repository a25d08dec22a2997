#include "tuner/lookup_table.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace moetune {
namespace {

size_t width(int64_t tokens) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(tokens)));
}

}  // namespace

LookupTable::LookupTable(const std::vector<Interval>& intervals) {
  assert(!intervals.empty());
  for (const Interval& interval : intervals) {
    assert(interval.to > (to_.empty() ? 0 : to_.back()));
    to_.push_back(interval.to);
    answers_.push_back(interval.answer);
    settled_.push_back(interval.settled);
  }
  const auto interval_of = [this](int64_t tokens) {
    const auto found = std::lower_bound(to_.begin(), to_.end(), tokens);
    return static_cast<uint32_t>(found - to_.begin());
  };
  for (size_t bits = 1; bits <= width(maximum()); ++bits) {
    const int64_t least = int64_t{1} << (bits - 1);
    first_[bits] = interval_of(least);
    last_[bits] = interval_of(std::min(least - 1 + least, maximum()));
  }
}

size_t LookupTable::index(int64_t tokens) const noexcept {
  const size_t bits = width(tokens);
  const int64_t* ends = to_.data();
  return static_cast<size_t>(std::lower_bound(ends + first_[bits], ends + last_[bits], tokens) -
                             ends);
}

const Lookup& LookupTable::find(int64_t tokens) const noexcept {
  if (tokens < 1 || tokens > maximum()) return kOutsideOfPlan;
  return answers_[index(tokens)];
}

}  // namespace moetune

#include "tuner/interval.h"

#include <algorithm>
#include <cstdlib>

namespace moetune {
namespace {

// A crossover need not be found to the token: an eighth of the zone costs three measurements.
constexpr int64_t kParts = 8;

Segment ordered(int64_t a, int64_t b, int owner) { return {std::min(a, b), std::max(a, b), owner}; }

}  // namespace

std::vector<Zone> zones_between(const std::vector<int64_t>& sizes) {
  std::vector<Zone> zones{{1, sizes.front() - 1, Segment::kNobody, 0}};
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const int lower = static_cast<int>(i);
    zones.push_back({sizes[i] + 1, sizes[i + 1] - 1, lower, lower + 1});
  }
  std::erase_if(zones, [](const Zone& zone) { return zone.empty(); });
  return zones;
}

std::vector<Segment> split(int64_t from, int64_t to, int owner, const Judge& judge) {
  const int64_t step = from <= to ? 1 : -1;
  const std::optional<int> at_end = judge(to);
  if (at_end == owner) return {ordered(from, to, owner)};
  if (!at_end) return {ordered(from, to, Segment::kNobody)};
  int64_t mine =
      from - step;     // The last size that is known to be the owner's: its bucket, at first.
  int64_t other = to;  // The first one that is known not to be.
  int other_owner = *at_end;
  const int64_t fine = std::max<int64_t>(1, (std::abs(to - from) + 1) / kParts);
  bool is_known = true;
  while (std::abs(other - mine) > fine) {
    const int64_t middle = mine + (other - mine) / 2;
    const std::optional<int> answer = judge(middle);
    if (!answer) {
      is_known = false;
      break;
    }
    if (*answer == owner) {
      mine = middle;
    } else {
      other = middle;
      // Further out somebody else may be right; the default is, if anybody.
      if (*answer != other_owner) other_owner = Segment::kNobody;
    }
  }
  if (is_known && fine > 1) mine = other - step;
  std::vector<Segment> segments;
  if (mine != from - step) segments.push_back(ordered(from, mine, owner));
  if (mine + step != other)
    segments.push_back(ordered(mine + step, other - step, Segment::kNobody));
  segments.push_back(ordered(other, to, other_owner));
  return segments;
}

std::vector<Segment> joined(std::vector<Segment> segments) {
  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.from < b.from; });
  std::vector<Segment> result;
  for (const Segment& segment : segments) {
    if (!result.empty() && result.back().owner == segment.owner) {
      result.back().to = segment.to;
    } else {
      result.push_back(segment);
    }
  }
  return result;
}

}  // namespace moetune

// Intervals: sizes between buckets, assigned to the decisions on either side.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace moetune {

/// Sizes from..to belong to the decision of a bucket, by position, or to nobody (kNobody): the
/// default runs.
struct Segment {
  static constexpr int kNobody = -1;

  int64_t from = 0;
  int64_t to = 0;
  int owner = kNobody;
  bool operator==(const Segment&) const = default;
};

/// The sizes strictly between two buckets, or beside the first or last one.
struct Zone {
  int64_t from = 0;
  int64_t to = 0;
  int lower = Segment::kNobody;  ///< The bucket just below, ...
  int upper = Segment::kNobody;  ///< ... and the one just above.
  bool empty() const { return from > to; }
};

/// The zones of these ascending bucket sizes: below the first, then after each one but the last.
std::vector<Zone> zones_between(const std::vector<int64_t>& sizes);

/// Who should run at a size: the zone's owner, or somebody else; nothing where that cannot be found
/// out any more.
using Judge = std::function<std::optional<int>(int64_t tokens)>;

/// Splits `from`..`to` (owner's side first, so that from > to where the owner's bucket is above) at
/// the point where `judge` stops answering `owner`. Asks at the far end first: one answer settles
/// the usual case. Sizes about which nothing is known belong to nobody.
std::vector<Segment> split(int64_t from, int64_t to, int owner, const Judge& judge);

/// In ascending order, neighbours of one owner joined.
std::vector<Segment> joined(std::vector<Segment> segments);

}  // namespace moetune

// The k largest of n keys, best first; equal keys go to the lowest index.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace moetune {

/// Writes the indices of the `indices.size()` largest keys, best first, and leaves those keys in
/// `best`, which must be of the same size. Needs at least as many keys. A NaN counts as -infinity,
/// so that the indices are always distinct and in range.
///
/// An insertion into a sorted list of k: most keys fail the one comparison with its last entry, so
/// that for k much smaller than n, as everywhere in routing, this beats a heap and a partial sort.
/// Allocates nothing.
template <typename Key>
void select_top_k(std::span<const Key> keys, std::span<int32_t> indices, std::span<Key> best) {
  const size_t k = indices.size();
  size_t filled = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Key key = keys[i] == keys[i] ? keys[i] : -std::numeric_limits<Key>::infinity();
    if (filled == k && !(key > best[k - 1])) continue;
    size_t at = filled < k ? filled++ : k - 1;
    for (; at > 0 && key > best[at - 1]; --at) {
      best[at] = best[at - 1];
      indices[at] = indices[at - 1];
    }
    best[at] = key;
    indices[at] = static_cast<int32_t>(i);
  }
}

}  // namespace moetune

// Dividing work between threads that live for one call: for checks and references, where starting a
// thread is nothing beside the work. Kernels have a team of their own (cpu/threads.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace moetune {

/// Calls body(first, last) for parts of [0, count), each on a thread of its own, and returns when
/// all have; `threads` of them, or `count` where those are fewer. `body` must not throw.
template <typename Body>
void in_parts(int threads, int64_t count, const Body& body) {
  if (count <= 0) return;
  threads = static_cast<int>(std::clamp<int64_t>(threads, 1, count));
  std::vector<std::jthread> others;
  for (int part = 1; part < threads; ++part) {
    others.emplace_back(body, count * part / threads, count * (part + 1) / threads);
  }
  body(int64_t{0}, count / threads);
}

}  // namespace moetune

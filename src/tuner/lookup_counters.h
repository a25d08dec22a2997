// Counts of look-ups by provenance, cheap enough to be always on: each thread adds to a cache line
// of its own (threads beyond the number of lines share), and reading adds the lines up.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "moetune/plan.h"

namespace moetune {

class LookupCounters {
 public:
  using Counts = std::array<uint64_t, 4>;  ///< By Provenance.

  void add(Provenance provenance) noexcept {
    lines_[this_thread_line()].counts[static_cast<size_t>(provenance)].fetch_add(
        1, std::memory_order_relaxed);
  }

  /// Everything counted by look-ups that happened before; those at work may be in it or not.
  Counts total() const {
    Counts sum{};
    for (const Line& line : lines_) {
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += line.counts[i].load(std::memory_order_relaxed);
      }
    }
    return sum;
  }

  void reset() {
    for (Line& line : lines_) {
      for (auto& count : line.counts) count.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr size_t kLines = 64;

  struct alignas(64) Line {
    std::array<std::atomic<uint64_t>, 4> counts{};
  };

  static size_t this_thread_line() noexcept {
    static std::atomic<size_t> next{0};
    thread_local const size_t line = next.fetch_add(1, std::memory_order_relaxed) % kLines;
    return line;
  }

  std::array<Line, kLines> lines_;
};

}  // namespace moetune

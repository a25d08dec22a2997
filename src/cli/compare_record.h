// What `moetune compare` found: several kernels at the same sizes, in the same rounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/statistics.h"

namespace moetune::cli {

/// One host's default, or what tuning chose of it.
struct Contestant {
  std::string host;
  bool is_tuned = false;

  std::string title() const { return host + (is_tuned ? " tuned" : " default"); }
};

/// One contestant at one size. Where `failed` is not empty, nothing was timed.
struct CompareCell {
  std::string candidate;
  double median_us = 0;
  double q1_us = 0;
  double q3_us = 0;
  /// The first contestant's time over this one's, paired by round; 1 where it failed.
  Estimate speedup{1, 1, 1};
  std::string failed;
  /// Tuned is the default here: the default's time stands for it.
  bool is_default = false;
};

struct CompareRow {
  int64_t tokens = 0;
  std::string workload;
  int rounds = 0;
  std::vector<CompareCell> cells;  ///< One for each contestant.

  /// The contestant with the least median; -1 where all failed.
  int fastest() const;
};

struct CompareRecord {
  std::vector<Contestant> contestants;
  std::vector<CompareRow> rows;

  /// Geometric mean over rows of a contestant's time over that of the row's fastest; 0 where it
  /// has no row.
  double mean_ratio(size_t contestant) const;
  int times_fastest(size_t contestant) const;

  Json to_json() const;
  std::string to_text() const;
};

}  // namespace moetune::cli

// What `moetune bench` found, and what follows from it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/describe.h"
#include "cli/lookup_cost.h"
#include "cli/paired.h"

namespace moetune::cli {

struct BenchRow {
  int64_t tokens = 0;
  std::string workload;
  PairedTimes times;
  Provenance provenance = Provenance::kDefault;
  std::string candidate;  ///< Text of what runs.
  bool is_default = true;
  bool is_remeasured = false;  ///< It seemed to lose; these times are of a second, longer look.
  Work work;
  Roofline roofline;  ///< Of the tuned time.
};

/// A larger loss against the default is one that a plan should not have.
inline constexpr double kMostLoss = 0.02;
double loss_of(const BenchRow& row);

/// More than this many times a larger size's time is a cliff.
inline constexpr double kCliffLoss = 1.1;

/// A number of tokens that takes longer than a larger one: padding up would be faster.
struct Cliff {
  int64_t tokens = 0;
  int64_t larger = 0;
  std::string workload;
  double ratio = 1;  ///< Time at `tokens` over time at `larger`.
};

/// Token counts that take over 10 % longer than one that is at least 10 % larger, under the same
/// workload; of each, the worst. `rows` are in ascending order of tokens within a workload.
std::vector<Cliff> find_cliffs(const std::vector<BenchRow>& rows);

struct BenchRecord {
  std::vector<BenchRow> rows;
  size_t asked = 0;           ///< Rows that were to be measured: more where time was up.
  std::vector<Cliff> cliffs;  ///< Of find_cliffs(rows), those that measuring again confirmed.
  Ceilings ceilings;
  std::optional<LookupCost> lookup;
  std::optional<LookupCost> unknown_lookup;  ///< Of a problem that nothing is known of.

  /// Median over rows of default over tuned, minus 1: what not tuning costs.
  double median_regret() const;
  /// The largest loss against the default: 1 - the least speed-up; 0 where nothing is slower.
  double worst_loss() const;
  /// Rows that run something else than the default, and those of them that lose over 2 % by it.
  size_t changed() const;
  size_t lost() const;
  /// Rows by Provenance.
  std::array<int, 4> coverage() const;

  /// The object that --json prints, without device and problem.
  Json to_json() const;
  std::string to_text() const;
};

}  // namespace moetune::cli

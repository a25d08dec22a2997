#include "cli/bench_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/table.h"

namespace moetune::cli {
namespace {

constexpr double kCliffStep = 1.1;

Json describe(const BenchRow& row) {
  return {{"tokens", row.tokens},
          {"workload", row.workload},
          {"default_us", row.times.default_us},
          {"tuned_us", row.times.tuned_us},
          {"speedup", row.times.speedup.value},
          {"speedup_ci", {row.times.speedup.low, row.times.speedup.high}},
          {"rounds", row.times.rounds},
          {"remeasured", row.is_remeasured},
          {"provenance", to_string(row.provenance)},
          {"candidate", row.candidate},
          {"touched_experts", row.work.touched_chunks},
          {"bound", row.roofline.bound},
          {"ceiling_fraction", row.roofline.fraction},
          {"ceiling", row.roofline.ceiling}};
}

Json describe(const Cliff& cliff) {
  return {{"tokens", cliff.tokens},
          {"slower_than", cliff.larger},
          {"workload", cliff.workload},
          {"ratio", cliff.ratio}};
}

Json describe(const LookupCost& cost) {
  return {{"lookups", cost.lookups},
          {"median_ns", cost.median_ns},
          {"first_ns", cost.first_ns},
          {"last_ns", cost.last_ns}};
}

std::string lookup_text(const char* what, const LookupCost& cost) {
  return fmt::format(
      "Look-up, {}: {:.1f} ns (first tenth {:.1f}, last tenth {:.1f} of {} look-ups)\n", what,
      cost.median_ns, cost.first_ns, cost.last_ns, cost.lookups);
}

}  // namespace

std::vector<Cliff> find_cliffs(const std::vector<BenchRow>& rows) {
  std::vector<Cliff> cliffs;
  for (const BenchRow& row : rows) {
    Cliff worst{row.tokens, 0, row.workload, kCliffLoss};
    for (const BenchRow& other : rows) {
      const bool larger =
          static_cast<double>(other.tokens) >= kCliffStep * static_cast<double>(row.tokens);
      if (!larger || other.workload != row.workload || other.times.tuned_us <= 0) continue;
      const double ratio = row.times.tuned_us / other.times.tuned_us;
      if (ratio > worst.ratio) worst = {row.tokens, other.tokens, row.workload, ratio};
    }
    if (worst.larger > 0) cliffs.push_back(worst);
  }
  return cliffs;
}

double loss_of(const BenchRow& row) { return 1 - row.times.speedup.value; }

double BenchRecord::median_regret() const {
  std::vector<double> regrets;
  for (const BenchRow& row : rows) regrets.push_back(row.times.speedup.value - 1);
  return median(regrets);
}

double BenchRecord::worst_loss() const {
  double worst = 0;
  for (const BenchRow& row : rows) worst = std::max(worst, loss_of(row));
  return worst;
}

size_t BenchRecord::changed() const {
  return static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](const BenchRow& row) { return !row.is_default; }));
}

size_t BenchRecord::lost() const {
  return static_cast<size_t>(std::count_if(
      rows.begin(), rows.end(), [](const BenchRow& row) { return loss_of(row) > kMostLoss; }));
}

std::array<int, 4> BenchRecord::coverage() const {
  std::array<int, 4> counts = {};
  for (const BenchRow& row : rows) ++counts[static_cast<size_t>(row.provenance)];
  return counts;
}

Json BenchRecord::to_json() const {
  Json object;
  object["ceilings"] = cli::describe(ceilings);
  object["rows"] = Json::array();
  for (const BenchRow& row : rows) object["rows"].push_back(describe(row));
  object["coverage"] = Json::object();
  const std::array<int, 4> counts = coverage();
  for (const Provenance provenance :
       {Provenance::kTuned, Provenance::kNearest, Provenance::kStale, Provenance::kDefault}) {
    object["coverage"][to_string(provenance)] = counts[static_cast<size_t>(provenance)];
  }
  object["median_regret_of_default"] = median_regret();
  object["worst_loss"] = worst_loss();
  object["rows_asked_for"] = asked;
  object["rows_not_the_default"] = changed();
  object["rows_over_2_percent_slower"] = lost();
  object["cliffs"] = Json::array();
  for (const Cliff& cliff : cliffs) object["cliffs"].push_back(describe(cliff));
  if (lookup) object["lookup"] = describe(*lookup);
  if (unknown_lookup) object["lookup_of_unknown"] = describe(*unknown_lookup);
  return object;
}

std::string BenchRecord::to_text() const {
  using Align = Table::Align;
  Table table({{"tokens"},
               {"workload", Align::kLeft},
               {"default"},
               {"tuned"},
               {"speed-up [95 %]"},
               {"from", Align::kLeft},
               {"bound", Align::kLeft},
               {"of ceiling"},
               {"experts"}});
  for (const BenchRow& row : rows) {
    const Estimate& speedup = row.times.speedup;
    table.add_row({std::to_string(row.tokens), row.workload, time_text(row.times.default_us),
                   time_text(row.times.tuned_us),
                   fmt::format("{:.3f} [{:.3f}, {:.3f}]", speedup.value, speedup.low, speedup.high),
                   to_string(row.provenance), row.roofline.bound,
                   fmt::format("{:.0f} %", 100 * row.roofline.fraction),
                   std::to_string(row.work.touched_chunks)});
  }
  std::string text = table.text();
  if (rows.size() < asked)
    text += fmt::format("{} of {} rows were measured: there was no time for more\n", rows.size(),
                        asked);
  const std::array<int, 4> counts = coverage();
  text += fmt::format("\nCoverage: {} tuned, {} nearest, {} stale, {} default\n", counts[0],
                      counts[1], counts[2], counts[3]);
  text += "Ceilings: " + ceilings_text(ceilings) + '\n';
  text += fmt::format(
      "Regret of the default: {:.1f} % in the median. Worst loss of what runs: {:.1f} %\n",
      100 * median_regret(), 100 * worst_loss());
  const auto again = std::count_if(rows.begin(), rows.end(),
                                   [](const BenchRow& row) { return row.is_remeasured; });
  text += fmt::format("Not the default runs in {} of {} rows; in {} it is over {:g} % slower",
                      changed(), rows.size(), lost(), 100 * kMostLoss);
  text += again > 0 ? fmt::format(" ({} seemed so and were measured again).\n", again) : ".\n";
  if (cliffs.empty())
    text +=
        "No cliffs: no number of tokens took over 10 % longer than one that is 10 % larger, or not "
        "when both were timed in turns.\n";
  for (const Cliff& cliff : cliffs) {
    text += fmt::format("Cliff: {} tokens ({}) take {:.2f}x the time of {}\n", cliff.tokens,
                        cliff.workload, cliff.ratio, cliff.larger);
  }
  if (lookup) text += lookup_text("known problem", *lookup);
  if (unknown_lookup) text += lookup_text("unknown problem", *unknown_lookup);
  return text;
}

}  // namespace moetune::cli

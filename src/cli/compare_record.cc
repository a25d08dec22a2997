#include "cli/compare_record.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/describe.h"
#include "cli/table.h"

namespace moetune::cli {
namespace {

std::string cell_text(const CompareRow& row, size_t contestant) {
  const CompareCell& cell = row.cells[contestant];
  if (!cell.failed.empty()) return "failed";
  const double best = row.cells[static_cast<size_t>(row.fastest())].median_us;
  return fmt::format("{} {:.2f}x", time_text(cell.median_us), cell.median_us / best);
}

Json cell_json(const CompareCell& cell, const Contestant& contestant) {
  Json json{{"host", contestant.host},
            {"tuned", contestant.is_tuned},
            {"candidate", cell.candidate},
            {"is_default", cell.is_default}};
  if (!cell.failed.empty()) {
    json["failed"] = cell.failed;
    return json;
  }
  json["us"] = cell.median_us;
  json["q1_us"] = cell.q1_us;
  json["q3_us"] = cell.q3_us;
  json["speedup"] = cell.speedup.value;
  json["speedup_ci"] = {cell.speedup.low, cell.speedup.high};
  return json;
}

}  // namespace

int CompareRow::fastest() const {
  int best = -1;
  for (size_t i = 0; i < cells.size(); ++i) {
    const bool is_better =
        best < 0 || cells[i].median_us < cells[static_cast<size_t>(best)].median_us;
    if (cells[i].failed.empty() && is_better) best = static_cast<int>(i);
  }
  return best;
}

double CompareRecord::mean_ratio(size_t contestant) const {
  double sum = 0;
  int count = 0;
  for (const CompareRow& row : rows) {
    const CompareCell& cell = row.cells[contestant];
    if (!cell.failed.empty()) continue;
    sum += std::log(cell.median_us / row.cells[static_cast<size_t>(row.fastest())].median_us);
    ++count;
  }
  return count == 0 ? 0 : std::exp(sum / count);
}

int CompareRecord::times_fastest(size_t contestant) const {
  int count = 0;
  for (const CompareRow& row : rows) count += row.fastest() == static_cast<int>(contestant);
  return count;
}

Json CompareRecord::to_json() const {
  Json lines = Json::array();
  for (const CompareRow& row : rows) {
    Json cells = Json::array();
    for (size_t i = 0; i < row.cells.size(); ++i)
      cells.push_back(cell_json(row.cells[i], contestants[i]));
    const int best = row.fastest();
    lines.push_back({{"tokens", row.tokens},
                     {"workload", row.workload},
                     {"rounds", row.rounds},
                     {"fastest", best < 0 ? "" : contestants[static_cast<size_t>(best)].title()},
                     {"times", std::move(cells)}});
  }
  Json summary = Json::array();
  for (size_t i = 0; i < contestants.size(); ++i) {
    summary.push_back({{"host", contestants[i].host},
                       {"tuned", contestants[i].is_tuned},
                       {"fastest", times_fastest(i)},
                       {"mean_ratio", mean_ratio(i)}});
  }
  return {{"rows", std::move(lines)}, {"summary", std::move(summary)}};
}

std::string CompareRecord::to_text() const {
  std::vector<Table::Column> columns = {{"tokens"}, {"workload", Table::Align::kLeft}};
  for (const Contestant& contestant : contestants) columns.push_back({contestant.title()});
  Table table(std::move(columns));
  for (const CompareRow& row : rows) {
    std::vector<std::string> cells = {std::to_string(row.tokens), row.workload};
    for (size_t i = 0; i < contestants.size(); ++i) cells.push_back(cell_text(row, i));
    table.add_row(std::move(cells));
  }
  std::string text = table.text() + "\nBeside each time: how many times the fastest one's it is.\n";
  for (size_t i = 0; i < contestants.size(); ++i) {
    if (mean_ratio(i) > 0) {
      text += fmt::format("{}: fastest at {} of {}, {:.3f} times the fastest in the mean\n",
                          contestants[i].title(), times_fastest(i), rows.size(), mean_ratio(i));
    }
  }
  for (const CompareRow& row : rows) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      if (!row.cells[i].failed.empty())
        text += fmt::format("{} at {} tokens, {}: {}\n", contestants[i].title(), row.tokens,
                            row.workload, row.cells[i].failed);
    }
  }
  return text;
}

}  // namespace moetune::cli

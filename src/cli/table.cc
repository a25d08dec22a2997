#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace moetune::cli {

void Table::add_row(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < columns_.size(); ++column) {
    size_t width = columns_[column].title.size();
    for (const auto& row : rows_) width = std::max(width, row[column].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](auto&& cell) {
    std::string line;
    for (size_t column = 0; column < columns_.size(); ++column) {
      const bool left = columns_[column].align == Align::kLeft;
      if (column > 0) line += "  ";
      line += left ? fmt::format("{:<{}}", cell(column), widths[column])
                   : fmt::format("{:>{}}", cell(column), widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](size_t column) { return columns_[column].title; });
  add_line([&](size_t column) { return std::string(widths[column], '-'); });
  for (const auto& row : rows_) add_line([&](size_t column) { return row[column]; });
  return text;
}

}  // namespace moetune::cli

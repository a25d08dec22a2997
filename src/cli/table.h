// Tables for people.
#pragma once

#include <string>
#include <vector>

namespace moetune::cli {

/// Columns as wide as their widest cell, two spaces apart. Cells hold ASCII.
class Table {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// As many cells as there are columns.
  void add_row(std::vector<std::string> cells);
  /// Title line, rule, rows; each line ends with a newline and without trailing spaces.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace moetune::cli

// Moving entries between journals, as lines of JSON (json_lines.h).
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "journal/contents.h"
#include "journal/database.h"

namespace moetune::journal {

struct Exported {
  int64_t measurements = 0;
  int64_t plans = 0;
  int64_t runs = 0;
};
/// Calls `write` with each line, without its end: measurements, plans, then runs, oldest first.
Result<Exported> export_lines(Database& database, const Filter& filter,
                              const std::function<Status(std::string_view)>& write);

struct BadLine {
  int64_t number = 0;  ///< From 1.
  std::string message;
};

struct Imported {
  int64_t measurements = 0;
  int64_t plans = 0;
  int64_t runs = 0;
  int64_t already_there = 0;
  int64_t bad_lines = 0;
  std::vector<BadLine> bad;  ///< The first kMostBadLines.
};
inline constexpr size_t kMostBadLines = 100;

/// Reads to the end. Empty lines are nothing. With `strict`, one bad line leaves the journal as it
/// was (counts are then 0), and others cannot write until the end; without, the good lines are
/// taken, a thousand at a time. An error is the journal's, and what was taken before it stays.
Result<Imported> import_lines(Database& database, std::istream& lines, bool strict);

}  // namespace moetune::journal

// Entries as lines of JSON, for moving them between machines and for other programs;
// docs/journal.md describes the fields.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "journal/entry.h"
#include "moetune/measuring.h"

namespace moetune::journal {

/// One line without its end.
std::string to_line(const MeasurementRecord& record, const Origin& origin);
std::string to_line(const PlanRecord& record, const Origin& origin);
std::string to_line(const RunRecord& record, const Origin& origin);

/// No line is longer: a plan of the most decisions takes about a quarter.
inline constexpr size_t kMaxLineBytes = size_t{16} << 20;

struct Entry {
  std::variant<MeasurementRecord, PlanRecord, RunRecord> record;
  Origin origin;
};

/// kParse, naming the field, for a line that cannot be or that makes no sense. Fields that this
/// version does not know are ignored.
Result<Entry> parse_line(std::string_view line);

}  // namespace moetune::journal

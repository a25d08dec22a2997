// Measurements as rows of the table `measurement`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "journal/entry.h"
#include "journal/names.h"
#include "journal/sqlite.h"
#include "moetune/measuring.h"

namespace moetune::journal {

/// "problem, device, ...": every column but `id`, in the order of bind_measurement().
const std::string& measurement_columns();
/// "?, ?, ...": as many parameters.
const std::string& measurement_parameters();
void bind_measurement(Statement& statement, const References& references,
                      const MeasurementRecord& record);

/// Reads measurements with everything that they refer to; each candidate is parsed once.
class RowReader {
 public:
  /// "SELECT ... FROM ...": add conditions and an order. Tables are called m (measurement), p
  /// (problem), d (device), c (candidate), o (origin).
  static const std::string& select();

  /// The row that a statement stands at. kParse where it is none that was ever written.
  Result<MeasurementRecord> measurement(const Statement& row);
  Result<Origin> origin(const Statement& row);

 private:
  std::unordered_map<int64_t, Candidate> candidates_;
  std::unordered_map<int64_t, Origin> origins_;
};

/// "full", "subset".
const char* to_string(Scale scale);
std::optional<Scale> scale_named(const std::string& name);
/// The inverse of to_string(ErrorCode).
std::optional<ErrorCode> error_code_named(const std::string& name);

}  // namespace moetune::journal

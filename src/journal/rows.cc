#include "journal/rows.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

#include "base/status_macros.h"

namespace moetune::journal {
namespace {

// In the order of bind_measurement() and of Column below.
constexpr std::array<std::string_view, 34> kColumns = {"problem",
                                                       "device",
                                                       "origin",
                                                       "candidate",
                                                       "tokens",
                                                       "workload",
                                                       "seed",
                                                       "scale",
                                                       "stage",
                                                       "phase",
                                                       "unix_ms",
                                                       "samples",
                                                       "median_us",
                                                       "min_us",
                                                       "q1_us",
                                                       "q3_us",
                                                       "clock_mhz",
                                                       "throttle_reasons",
                                                       "temperature_c",
                                                       "power_w",
                                                       "rejected",
                                                       "rejected_as",
                                                       "against",
                                                       "against_version",
                                                       "against_samples",
                                                       "against_median_us",
                                                       "against_min_us",
                                                       "against_q1_us",
                                                       "against_q3_us",
                                                       "speedup",
                                                       "speedup_low",
                                                       "speedup_high",
                                                       "rounds",
                                                       "outcome"};

// What a selected row has before the columns of the measurement.
enum Head : int {
  kId,
  kProblemKey,
  kDeviceKey,
  kProgram,
  kToolchain,
  kRunner,
  kVersion,
  kScheme,
  kStages,
  kLayout,
  kHeadSize
};

constexpr int column(std::string_view name) {
  int number = kHeadSize;
  for (const std::string_view other : kColumns) {
    if (other == name) return number;
    ++number;
  }
  return -1;
}

std::string list_of_columns(std::string_view prefix) {
  std::string list;
  for (const std::string_view name : kColumns)
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", prefix, name);
  return list;
}

// NaN would be stored as NULL. Infinities are kept: the interval of a comparison may be open.
double storable(double value) { return std::isnan(value) ? 0 : value; }

void bind_time(Statement& statement, const TimeSummary& time) {
  statement.bind(time.samples).bind(storable(time.median_us)).bind(storable(time.min_us));
  statement.bind(storable(time.q1_us)).bind(storable(time.q3_us));
}

TimeSummary time_at(const Statement& row, int first) {
  TimeSummary time;
  time.samples = static_cast<int>(row.number(first));
  time.median_us = row.real(first + 1);
  time.min_us = row.real(first + 2);
  time.q1_us = row.real(first + 3);
  time.q3_us = row.real(first + 4);
  return time;
}

void bind_comparison(Statement& statement, const std::optional<Comparison>& versus) {
  constexpr int kComparisonColumns = 12;
  if (!versus) {
    for (int i = 0; i < kComparisonColumns; ++i) statement.bind_null();
    return;
  }
  statement.bind(versus->against).bind(versus->against_version);
  bind_time(statement, versus->against_time);
  statement.bind(storable(versus->speedup)).bind(storable(versus->low));
  statement.bind(storable(versus->high)).bind(versus->rounds).bind(versus->outcome);
}

std::optional<Comparison> comparison_of(const Statement& row) {
  if (row.is_null(column("against"))) return std::nullopt;
  Comparison versus;
  versus.against = row.text(column("against"));
  versus.against_version = static_cast<int>(row.number(column("against_version")));
  versus.against_time = time_at(row, column("against_samples"));
  versus.speedup = row.real(column("speedup"));
  versus.low = row.real(column("speedup_low"));
  versus.high = row.real(column("speedup_high"));
  versus.rounds = static_cast<int>(row.number(column("rounds")));
  versus.outcome = row.text(column("outcome"));
  return versus;
}

DeviceState state_of(const Statement& row) {
  DeviceState state;
  state.clock_mhz = static_cast<int>(row.number(column("clock_mhz")));
  state.throttle_reasons = static_cast<uint64_t>(row.number(column("throttle_reasons")));
  state.temperature_c = static_cast<int>(row.number(column("temperature_c")));
  state.power_w = row.real(column("power_w"));
  return state;
}

Error nonsense(const Statement& row, std::string_view what) {
  return {ErrorCode::kParse,
          fmt::format("measurement {} makes no sense: {}", row.number(kId), what)};
}

}  // namespace

const std::string& measurement_columns() {
  static const std::string columns = list_of_columns("");
  return columns;
}

const std::string& measurement_parameters() {
  static const std::string parameters = [] {
    std::string list = "?";
    for (size_t i = 1; i < kColumns.size(); ++i) list += ", ?";
    return list;
  }();
  return parameters;
}

void bind_measurement(Statement& statement, const References& references,
                      const MeasurementRecord& record) {
  statement.bind(references.problem).bind(references.device).bind(references.origin);
  statement.bind(references.candidate).bind(record.what.tokens).bind(record.what.workload);
  statement.bind(static_cast<int64_t>(record.what.seed)).bind(to_string(record.scale));
  statement.bind(record.stage).bind(record.phase).bind(record.unix_ms);
  bind_time(statement, record.time);
  const DeviceState& state = record.state;
  statement.bind(state.clock_mhz).bind(static_cast<int64_t>(state.throttle_reasons));
  statement.bind(state.temperature_c).bind(storable(state.power_w));
  if (record.rejected.empty()) {
    statement.bind_null().bind_null();
  } else {
    statement.bind(record.rejected).bind(moetune::to_string(record.rejected_as));
  }
  bind_comparison(statement, record.versus);
}

const std::string& RowReader::select() {
  // CROSS JOIN keeps the planner from walking through the small tables first.
  static const std::string select = fmt::format(
      "SELECT m.id, p.key, d.key, o.program, o.toolchain, c.runner, c.version, c.scheme, c.stages,"
      " c.layout, {} FROM measurement m CROSS JOIN problem p ON p.id = m.problem"
      " CROSS JOIN device d ON d.id = m.device CROSS JOIN candidate c ON c.id = m.candidate"
      " CROSS JOIN origin o ON o.id = m.origin",
      list_of_columns("m."));
  return select;
}

Result<MeasurementRecord> RowReader::measurement(const Statement& row) {
  MeasurementRecord record;
  record.problem = row.text(kProblemKey);
  record.device = row.text(kDeviceKey);
  const auto [candidate, is_new] = candidates_.try_emplace(row.number(column("candidate")));
  if (is_new) {
    Candidate& parsed = candidate->second;
    parsed.runner = row.text(kRunner);
    parsed.runner_version = static_cast<int>(row.number(kVersion));
    parsed.scheme = row.text(kScheme);
    Status status = read_stages(row.text(kStages), parsed);
    if (!status.ok()) return nonsense(row, status.error().message);
  }
  record.candidate = candidate->second;
  record.layout = row.text(kLayout);
  record.what.tokens = row.number(column("tokens"));
  record.what.workload = row.text(column("workload"));
  record.what.seed = static_cast<uint64_t>(row.number(column("seed")));
  const auto scale = scale_named(row.text(column("scale")));
  if (!scale) return nonsense(row, "its scale");
  record.scale = *scale;
  record.stage = static_cast<int>(row.number(column("stage")));
  record.phase = row.text(column("phase"));
  record.unix_ms = row.number(column("unix_ms"));
  record.time = time_at(row, column("samples"));
  record.state = state_of(row);
  record.rejected = row.text(column("rejected"));
  if (!record.rejected.empty()) {
    const auto code = error_code_named(row.text(column("rejected_as")));
    if (!code) return nonsense(row, "its kind of rejection");
    record.rejected_as = *code;
  }
  record.versus = comparison_of(row);
  return record;
}

Result<Origin> RowReader::origin(const Statement& row) {
  const auto [origin, is_new] = origins_.try_emplace(row.number(column("origin")));
  if (is_new) {
    origin->second.program = row.text(kProgram);
    Status status = read_toolchain(row.text(kToolchain), origin->second);
    if (!status.ok()) return nonsense(row, status.error().message);
  }
  return origin->second;
}

const char* to_string(Scale scale) { return scale == Scale::kFull ? "full" : "subset"; }

std::optional<Scale> scale_named(const std::string& name) {
  for (const Scale scale : {Scale::kFull, Scale::kSubset}) {
    if (name == to_string(scale)) return scale;
  }
  return std::nullopt;
}

std::optional<ErrorCode> error_code_named(const std::string& name) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    if (name == moetune::to_string(static_cast<ErrorCode>(code)))
      return static_cast<ErrorCode>(code);
  }
  return std::nullopt;
}

}  // namespace moetune::journal

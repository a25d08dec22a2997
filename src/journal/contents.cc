#include "journal/contents.h"

#include <fmt/format.h>

#include <map>

#include "base/json.h"
#include "base/status_macros.h"
#include "journal/rows.h"
#include "journal/runs.h"
#include "tuner/configuration.h"

namespace moetune::journal {
namespace {

// Conditions on a table that has problem, device and unix_ms; three parameters.
constexpr const char* kMatches =
    "problem IN (SELECT id FROM problem WHERE instr(key, ?) > 0)"
    " AND device IN (SELECT id FROM device WHERE instr(key, ?) > 0) AND unix_ms < ?";
// The same where the tables have the names of RowReader::select().
constexpr const char* kJoinedMatches =
    " WHERE instr(p.key, ?) > 0 AND instr(d.key, ?) > 0 AND m.unix_ms < ?";

void bind(Statement& statement, const Filter& filter) {
  statement.bind(filter.problem).bind(filter.device).bind(filter.before_unix_ms);
}

Result<int64_t> count_in(Database& database, const char* table, const Filter& filter) {
  MOETUNE_ASSIGN_OR_RETURN(Statement statement,
                           database.connection().prepare(
                               fmt::format("SELECT count(*) FROM {} WHERE {}", table, kMatches)));
  bind(statement, filter);
  MOETUNE_ASSIGN_OR_RETURN(const bool is_row, statement.step());
  return is_row ? statement.number(0) : 0;
}

// Until a step finds nothing more to take.
Result<int64_t> prune_from(Database& database, const char* table, const Filter& filter) {
  constexpr int kPerTransaction = 5000;
  MOETUNE_ASSIGN_OR_RETURN(
      Statement statement,
      database.connection().prepare(
          fmt::format("DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE {1} LIMIT {2})", table,
                      kMatches, kPerTransaction)));
  int64_t total = 0;
  while (true) {
    bind(statement, filter);
    MOETUNE_RETURN_IF_ERROR(statement.run());
    const int64_t taken = database.connection().changes();
    total += taken;
    if (taken < kPerTransaction) return total;
  }
}

// Names that nothing refers to any more, but for the newest of each table: SQLite gives a number
// again only when it was the largest, and a number that another process remembers must be right or
// refused (the foreign keys), never somebody else's.
// The foreign keys are off meanwhile: for each row they would look through all measurements.
Status drop_unused_names(Connection& connection) {
  MOETUNE_RETURN_IF_ERROR(connection.execute("PRAGMA foreign_keys = OFF"));
  Status status = connection.execute(
      "BEGIN IMMEDIATE;"
      "DELETE FROM candidate WHERE id NOT IN (SELECT candidate FROM measurement)"
      " AND id < (SELECT max(id) FROM candidate);"
      "DELETE FROM problem WHERE id NOT IN (SELECT problem FROM measurement"
      " UNION SELECT problem FROM plan UNION SELECT problem FROM run)"
      " AND id < (SELECT max(id) FROM problem);"
      "DELETE FROM device WHERE id NOT IN (SELECT device FROM measurement"
      " UNION SELECT device FROM plan UNION SELECT device FROM run UNION SELECT device FROM "
      "ceiling)"
      " AND id < (SELECT max(id) FROM device);"
      "DELETE FROM origin WHERE id NOT IN (SELECT origin FROM measurement"
      " UNION SELECT origin FROM plan UNION SELECT origin FROM run UNION SELECT origin FROM "
      "ceiling)"
      " AND id < (SELECT max(id) FROM origin);"
      "COMMIT");
  if (!status.ok()) (void)connection.execute("ROLLBACK");
  MOETUNE_RETURN_IF_ERROR(connection.execute("PRAGMA foreign_keys = ON"));
  return status;
}

// Of no problem: where only some problems are pruned they stay.
Status prune_ceilings(Connection& connection, const Filter& filter) {
  if (!filter.problem.empty()) return {};
  MOETUNE_ASSIGN_OR_RETURN(
      Statement statement,
      connection.prepare("DELETE FROM ceiling WHERE unix_ms < ?"
                         " AND device IN (SELECT id FROM device WHERE instr(key, ?) > 0)"));
  return statement.bind(filter.before_unix_ms).bind(filter.device).run();
}

Status give_space_back(Connection& connection) {
  constexpr int kPagesPerStep = 2000;
  int64_t before = 0;
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const int64_t free, connection.number("PRAGMA freelist_count"));
    if (free == 0 || free == before) break;
    before = free;
    MOETUNE_RETURN_IF_ERROR(
        connection.execute(fmt::format("PRAGMA incremental_vacuum({})", kPagesPerStep)));
  }
  return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

using Groups = std::map<std::pair<std::string, std::string>, Group>;  // By device and problem.

Group& group_at(Groups& groups, const Statement& row) {
  Group& group = groups[{row.text(0), row.text(1)}];
  group.device = row.text(0);
  group.problem = row.text(1);
  return group;
}

Status add_measurements(Database& database, const Filter& filter, Groups& groups) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      database.connection().prepare(fmt::format(
          "SELECT d.key, p.key, count(*), count(rejected), count(against), "
          " count(DISTINCT candidate), min(unix_ms), max(unix_ms)"
          " FROM measurement m JOIN problem p ON p.id = m.problem JOIN device d ON d.id = m.device"
          "{} GROUP BY m.problem, m.device",
          kJoinedMatches)));
  bind(row, filter);
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return {};
    Group& group = group_at(groups, row);
    group.measurements = row.number(2);
    group.rejections = row.number(3);
    group.comparisons = row.number(4);
    group.candidates = row.number(5);
    group.first_unix_ms = row.number(6);
    group.last_unix_ms = row.number(7);
  }
}

Status add_runners(Database& database, const Filter& filter, Groups& groups) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      database.connection().prepare(fmt::format(
          "SELECT DISTINCT d.key, p.key, c.runner, c.version"
          " FROM measurement m JOIN problem p ON p.id = m.problem JOIN device d ON d.id = m.device"
          " JOIN candidate c ON c.id = m.candidate{} ORDER BY c.runner, c.version",
          kJoinedMatches)));
  bind(row, filter);
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return {};
    group_at(groups, row).runners.push_back(fmt::format("{}@{}", row.text(2), row.number(3)));
  }
}

Status add_plans(Database& database, const Filter& filter, Groups& groups) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      database.connection().prepare(fmt::format(
          "SELECT d.key, p.key, count(*), min(unix_ms), max(unix_ms)"
          " FROM plan m JOIN problem p ON p.id = m.problem JOIN device d ON d.id = m.device"
          "{} GROUP BY m.problem, m.device",
          kJoinedMatches)));
  bind(row, filter);
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return {};
    Group& group = group_at(groups, row);
    group.plans = row.number(2);
    if (group.measurements == 0) group.first_unix_ms = row.number(3);
    group.last_unix_ms = std::max(group.last_unix_ms, row.number(4));
  }
}

Status add_runs(Database& database, const Filter& filter, Groups& groups) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      database.connection().prepare(fmt::format(
          "SELECT d.key, p.key, count(*), total(seconds), min(unix_ms), max(unix_ms)"
          " FROM run m JOIN problem p ON p.id = m.problem JOIN device d ON d.id = m.device"
          "{} GROUP BY m.problem, m.device",
          kJoinedMatches)));
  bind(row, filter);
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return {};
    Group& group = group_at(groups, row);
    group.runs = row.number(2);
    group.run_seconds = row.real(3);
    if (group.measurements + group.plans == 0) {
      group.first_unix_ms = row.number(4);
      group.last_unix_ms = row.number(5);
    }
  }
}

Result<PlanRecord> plan_of(const Statement& row) {
  PlanRecord record;
  MOETUNE_ASSIGN_OR_RETURN(const Json device, parse_json(row.text(0), "properties of a plan"));
  JsonReader device_reader(device, "device");
  record.device = device_from_json(device_reader);
  if (!device_reader.ok()) return device_reader.error();
  MOETUNE_ASSIGN_OR_RETURN(const Json plan, parse_json(row.text(1), "plan"));
  JsonReader plan_reader(plan, "plan");
  record.plan = plan_from_json(plan_reader, plan);
  if (!plan_reader.ok()) return plan_reader.error();
  record.unix_ms = row.number(2);
  return record;
}

}  // namespace

Result<std::vector<Group>> groups(Database& database, const Filter& filter) {
  Groups found;
  MOETUNE_RETURN_IF_ERROR(add_measurements(database, filter, found));
  MOETUNE_RETURN_IF_ERROR(add_runners(database, filter, found));
  MOETUNE_RETURN_IF_ERROR(add_plans(database, filter, found));
  MOETUNE_RETURN_IF_ERROR(add_runs(database, filter, found));
  std::vector<Group> list;
  for (auto& [key, group] : found) list.push_back(std::move(group));
  return list;
}

Status visit_measurements(
    Database& database, const Filter& filter,
    const std::function<Status(const MeasurementRecord&, const Origin&)>& visit) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      database.connection().prepare(RowReader::select() + kJoinedMatches + " ORDER BY m.id"));
  bind(row, filter);
  RowReader reader;
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return {};
    MOETUNE_ASSIGN_OR_RETURN(const MeasurementRecord record, reader.measurement(row));
    MOETUNE_ASSIGN_OR_RETURN(const Origin origin, reader.origin(row));
    MOETUNE_RETURN_IF_ERROR(visit(record, origin));
  }
}

Status visit_plans(Database& database, const Filter& filter,
                   const std::function<Status(const PlanRecord&, const Origin&)>& visit) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      database.connection().prepare(
          fmt::format("SELECT m.properties, m.plan, m.unix_ms, o.program, o.toolchain FROM plan m"
                      " JOIN problem p ON p.id = m.problem JOIN device d ON d.id = m.device"
                      " JOIN origin o ON o.id = m.origin{} ORDER BY m.id",
                      kJoinedMatches)));
  bind(row, filter);
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return {};
    MOETUNE_ASSIGN_OR_RETURN(const PlanRecord record, plan_of(row));
    Origin origin{.program = row.text(3)};
    MOETUNE_RETURN_IF_ERROR(read_toolchain(row.text(4), origin));
    MOETUNE_RETURN_IF_ERROR(visit(record, origin));
  }
}

Status visit_runs(Database& database, const Filter& filter,
                  const std::function<Status(const RunRecord&, const Origin&)>& visit) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      database.connection().prepare(fmt::format(
          "SELECT {}, COALESCE(plan.unix_ms, 0), o.program, o.toolchain FROM run m"
          " JOIN problem p ON p.id = m.problem JOIN device d ON d.id = m.device"
          " JOIN origin o ON o.id = m.origin LEFT JOIN plan ON plan.id = m.plan{} ORDER BY m.id",
          kRunColumns, kJoinedMatches)));
  bind(row, filter);
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return {};
    RunRecord record;
    MOETUNE_ASSIGN_OR_RETURN(record.run, run_of(row));
    record.plan_unix_ms = row.number(kRunColumnCount);
    Origin origin{.program = row.text(kRunColumnCount + 1)};
    MOETUNE_RETURN_IF_ERROR(read_toolchain(row.text(kRunColumnCount + 2), origin));
    MOETUNE_RETURN_IF_ERROR(visit(record, origin));
  }
}

Result<Pruned> count(Database& database, const Filter& filter) {
  Pruned counted;
  MOETUNE_ASSIGN_OR_RETURN(counted.measurements, count_in(database, "measurement", filter));
  MOETUNE_ASSIGN_OR_RETURN(counted.plans, count_in(database, "plan", filter));
  MOETUNE_ASSIGN_OR_RETURN(counted.runs, count_in(database, "run", filter));
  return counted;
}

Result<Pruned> prune(Database& database, const Filter& filter) {
  // Runs first, by when they began: what a run measured is never gone while the run still counts.
  Pruned pruned;
  MOETUNE_ASSIGN_OR_RETURN(pruned.runs, prune_from(database, "run", filter));
  MOETUNE_ASSIGN_OR_RETURN(pruned.measurements, prune_from(database, "measurement", filter));
  MOETUNE_ASSIGN_OR_RETURN(pruned.plans, prune_from(database, "plan", filter));
  MOETUNE_RETURN_IF_ERROR(prune_ceilings(database.connection(), filter));
  database.forget();
  MOETUNE_RETURN_IF_ERROR(drop_unused_names(database.connection()));
  MOETUNE_RETURN_IF_ERROR(give_space_back(database.connection()));
  return pruned;
}

}  // namespace moetune::journal

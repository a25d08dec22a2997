#include "journal/database.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/status_macros.h"
#include "journal/rows.h"
#include "tuner/configuration.h"

namespace moetune::journal {
namespace {

// What a later record of the same thing has in common with an earlier one.
std::string place_of(const MeasurementRecord& record, const References& references) {
  const Case& what = record.what;
  return fmt::format(
      "{} {} {} {} {}\n{} {} {} {}{}\n{}", references.problem, references.device,
      references.candidate, what.tokens, what.seed, what.workload, to_string(record.scale),
      record.stage, record.phase, record.rejected.empty() ? "" : " rejected",
      record.versus ? fmt::format("{}@{}", record.versus->against, record.versus->against_version)
                    : "");
}

}  // namespace

Database::Database(Connection connection, const FileIdentity& identity)
    : connection_(std::move(connection)), identity_(identity), names_(connection_) {}

Status Database::prepare_statements() {
  MOETUNE_ASSIGN_OR_RETURN(
      insert_, connection_.prepare(fmt::format("INSERT INTO measurement ({}) VALUES ({})",
                                               measurement_columns(), measurement_parameters())));
  MOETUNE_ASSIGN_OR_RETURN(
      update_, connection_.prepare(fmt::format("UPDATE measurement SET ({}) = ({}) WHERE id = ?"
                                               " AND candidate = ? AND tokens = ? AND stage = ?"
                                               " AND phase = ?",
                                               measurement_columns(), measurement_parameters())));
  MOETUNE_ASSIGN_OR_RETURN(
      find_,
      connection_.prepare(RowReader::select() +
                          " WHERE m.problem = (SELECT id FROM problem WHERE key = ?)"
                          " AND m.device = (SELECT id FROM device WHERE key = ?) ORDER BY m.id"));
  MOETUNE_ASSIGN_OR_RETURN(
      same_, connection_.prepare("SELECT 1 FROM measurement WHERE problem = ? AND device = ?"
                                 " AND candidate = ? AND tokens = ? AND workload = ? AND seed = ?"
                                 " AND scale = ? AND stage = ? AND phase = ? AND unix_ms = ?"
                                 " AND samples = ? AND rejected IS NULLIF(?, '')"
                                 " AND against IS NULLIF(?, '')"));
  return {};
}

void Database::forget() {
  names_.forget();
  written_.clear();
}

Status Database::put(std::span<const MeasurementRecord> records, const Origin& origin) {
  Status status = put_once(records, origin);
  // A name that is remembered here was pruned by another process: look it up again.
  if (!status.ok() && status.error().code == ErrorCode::kInternal)
    status = put_once(records, origin);
  return status;
}

// All or nothing; what is remembered of a transaction that was not committed is forgotten.
Status Database::in_transaction(const std::function<Status()>& body) {
  MOETUNE_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(connection_));
  Status status = body();
  if (status.ok()) status = transaction.commit();
  if (!status.ok()) forget();
  return status;
}

Status Database::put_once(std::span<const MeasurementRecord> records, const Origin& origin) {
  return in_transaction([&]() -> Status {
    for (const MeasurementRecord& record : records) {
      MOETUNE_ASSIGN_OR_RETURN(const References references, references_of(record, origin));
      MOETUNE_RETURN_IF_ERROR(put_one(record, references));
    }
    return {};
  });
}

Status Database::put_one(const MeasurementRecord& record, const References& references) {
  std::string place = place_of(record, references);
  const auto earlier = written_.find(place);
  if (earlier != written_.end()) {
    bind_measurement(update_, references, record);
    // Where the row was pruned meanwhile, another one may have its number.
    update_.bind(earlier->second).bind(references.candidate).bind(record.what.tokens);
    MOETUNE_RETURN_IF_ERROR(update_.bind(record.stage).bind(record.phase).run());
    if (connection_.changes() == 1) return {};
  }
  bind_measurement(insert_, references, record);
  MOETUNE_RETURN_IF_ERROR(insert_.run());
  written_[std::move(place)] = connection_.last_id();
  return {};
}

Result<References> Database::references_of(const std::string& problem, const std::string& device,
                                           const Origin& origin) {
  References references;
  MOETUNE_ASSIGN_OR_RETURN(references.problem, names_.problem(problem));
  MOETUNE_ASSIGN_OR_RETURN(references.device, names_.device(device));
  MOETUNE_ASSIGN_OR_RETURN(references.origin, names_.origin(origin));
  return references;
}

Result<References> Database::references_of(const MeasurementRecord& record, const Origin& origin) {
  MOETUNE_ASSIGN_OR_RETURN(References references,
                           references_of(record.problem, record.device, origin));
  MOETUNE_ASSIGN_OR_RETURN(references.candidate, names_.candidate(record.candidate, record.layout));
  return references;
}

Result<std::vector<MeasurementRecord>> Database::find(const std::string& problem,
                                                      const std::string& device) {
  std::vector<MeasurementRecord> records;
  RowReader reader;
  find_.bind(problem).bind(device);
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, find_.step());
    if (!is_row) return records;
    Result<MeasurementRecord> record = reader.measurement(find_);
    if (!record.ok()) {
      find_.reset();
      return Error{record.error().code, fmt::format("{}: {}", path(), record.error().message)};
    }
    records.push_back(std::move(record).value());
  }
}

Result<bool> Database::merge(const MeasurementRecord& record, const Origin& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const References references, references_of(record, origin));
  same_.bind(references.problem).bind(references.device).bind(references.candidate);
  same_.bind(record.what.tokens).bind(record.what.workload);
  same_.bind(static_cast<int64_t>(record.what.seed)).bind(to_string(record.scale));
  same_.bind(record.stage).bind(record.phase).bind(record.unix_ms).bind(record.time.samples);
  same_.bind(record.rejected).bind(record.versus ? record.versus->against : "");
  MOETUNE_ASSIGN_OR_RETURN(const bool is_there, same_.step());
  same_.reset();
  if (is_there) return false;
  bind_measurement(insert_, references, record);
  MOETUNE_RETURN_IF_ERROR(insert_.run());
  return true;
}

Result<bool> Database::merge_plan(const PlanRecord& record, const Origin& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const References references,
                           references_of(record.plan.problem.key(), record.device.key(), origin));
  const std::string plan = print_json_line(plan_to_json(record.plan));
  MOETUNE_ASSIGN_OR_RETURN(Statement same,
                           connection_.prepare("SELECT 1 FROM plan WHERE problem = ? AND device = ?"
                                               " AND unix_ms = ? AND plan = ?"));
  same.bind(references.problem).bind(references.device).bind(record.unix_ms).bind(plan);
  MOETUNE_ASSIGN_OR_RETURN(const bool is_there, same.step());
  if (is_there) return false;
  MOETUNE_RETURN_IF_ERROR(insert_plan(record, references, plan));
  return true;
}

Status Database::insert_plan(const PlanRecord& record, const References& references,
                             const std::string& plan) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement insert,
      connection_.prepare("INSERT INTO plan (problem, device, origin, unix_ms, properties, plan)"
                          " VALUES (?, ?, ?, ?, ?, ?)"));
  insert.bind(references.problem).bind(references.device).bind(references.origin);
  insert.bind(record.unix_ms).bind(print_json_line(device_to_json(record.device))).bind(plan);
  return insert.run();
}

}  // namespace moetune::journal

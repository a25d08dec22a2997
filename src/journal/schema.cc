#include "journal/schema.h"

#include <fmt/format.h>

#include <array>

#include "base/status_macros.h"

namespace moetune::journal {
namespace {

constexpr int64_t kApplication = 0x6D6F6574;  // "moet"

// Texts that many measurements share are stored once, each in a table of names.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE problem (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE device (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE origin (
  id INTEGER PRIMARY KEY,
  program TEXT NOT NULL,
  toolchain TEXT NOT NULL,
  UNIQUE (program, toolchain));
CREATE TABLE candidate (
  id INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,
  runner TEXT NOT NULL,
  version INTEGER NOT NULL,
  scheme TEXT NOT NULL,
  stages TEXT NOT NULL,
  layout TEXT NOT NULL);
CREATE INDEX candidate_by_hash ON candidate (hash);
CREATE TABLE measurement (
  id INTEGER PRIMARY KEY,
  problem INTEGER NOT NULL REFERENCES problem,
  device INTEGER NOT NULL REFERENCES device,
  candidate INTEGER NOT NULL REFERENCES candidate,
  origin INTEGER NOT NULL REFERENCES origin,
  tokens INTEGER NOT NULL,
  workload TEXT NOT NULL,
  seed INTEGER NOT NULL,
  scale TEXT NOT NULL,
  stage INTEGER NOT NULL,
  phase TEXT NOT NULL,
  unix_ms INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  median_us REAL NOT NULL,
  min_us REAL NOT NULL,
  q1_us REAL NOT NULL,
  q3_us REAL NOT NULL,
  clock_mhz INTEGER NOT NULL,
  throttle_reasons INTEGER NOT NULL,
  temperature_c INTEGER NOT NULL,
  power_w REAL NOT NULL,
  rejected TEXT,
  rejected_as TEXT,
  against TEXT,
  against_version INTEGER,
  against_samples INTEGER,
  against_median_us REAL,
  against_min_us REAL,
  against_q1_us REAL,
  against_q3_us REAL,
  speedup REAL,
  speedup_low REAL,
  speedup_high REAL,
  rounds INTEGER,
  outcome TEXT);
CREATE INDEX measurement_by_place ON measurement (problem, device, candidate);
CREATE TABLE plan (
  id INTEGER PRIMARY KEY,
  problem INTEGER NOT NULL REFERENCES problem,
  device INTEGER NOT NULL REFERENCES device,
  origin INTEGER NOT NULL REFERENCES origin,
  unix_ms INTEGER NOT NULL,
  properties TEXT NOT NULL,
  plan TEXT NOT NULL);
CREATE INDEX plan_by_place ON plan (problem, device);
)sql";

// What tuning cost, and what machines can do at best. Runs of version 1 left only their plans: what
// they spent is not known, and counts as nothing.
constexpr const char* kVersion2 = R"sql(
CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  token INTEGER NOT NULL UNIQUE,
  problem INTEGER NOT NULL REFERENCES problem,
  device INTEGER NOT NULL REFERENCES device,
  origin INTEGER NOT NULL REFERENCES origin,
  unix_ms INTEGER NOT NULL,
  workload TEXT NOT NULL,
  seed INTEGER NOT NULL,
  terms TEXT NOT NULL,
  runners TEXT NOT NULL,
  buckets TEXT NOT NULL,
  seconds REAL NOT NULL,
  budget_s REAL NOT NULL,
  plan INTEGER REFERENCES plan ON DELETE SET NULL);
CREATE INDEX run_by_place ON run (problem, device);
CREATE INDEX run_by_plan ON run (plan);
CREATE TABLE ceiling (
  id INTEGER PRIMARY KEY,
  device INTEGER NOT NULL REFERENCES device,
  origin INTEGER NOT NULL REFERENCES origin,
  what TEXT NOT NULL,
  unix_ms INTEGER NOT NULL,
  read_bytes INTEGER NOT NULL,
  read_bytes_per_s REAL NOT NULL,
  read_name TEXT NOT NULL,
  operations_per_s REAL NOT NULL,
  operations_name TEXT NOT NULL,
  UNIQUE (device, origin, what));
)sql";

Status make_tables(Connection& connection) {
  MOETUNE_RETURN_IF_ERROR(connection.execute(kVersion1));
  return connection.execute(fmt::format("PRAGMA application_id = {}", kApplication));
}

Status add_runs_and_ceilings(Connection& connection) { return connection.execute(kVersion2); }

constexpr std::array<Migration, 2> kMigrations = {make_tables, add_runs_and_ceilings};

Error foreign(const std::string& path) {
  return {ErrorCode::kUnsupported, fmt::format("{} is another program's SQLite database", path),
          "it is left as it is; name another file"};
}

Error too_new(const std::string& path, int64_t version, size_t known) {
  return {ErrorCode::kUnsupported,
          fmt::format("{} is a journal of version {}, and this program knows {} at most", path,
                      version, known),
          "it is left as it is; update moetune, or name another file"};
}

}  // namespace

std::span<const Migration> migrations() { return kMigrations; }

bool FileKind::is_journal() const { return application == kApplication; }

Status check_kind(const FileKind& kind, const std::string& path, size_t newest) {
  if (kind.is_empty()) return {};
  if (!kind.is_journal()) return foreign(path);
  if (kind.version > static_cast<int64_t>(newest)) return too_new(path, kind.version, newest);
  if (kind.version >= 1) return {};
  return Error{ErrorCode::kParse, fmt::format("{}: version {}", path, kind.version)};
}

Result<FileKind> kind_of(const Connection& connection) {
  FileKind kind;
  // One statement, so that all of it is of one moment.
  MOETUNE_ASSIGN_OR_RETURN(
      Statement statement,
      connection.prepare("SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
                         " FROM pragma_application_id, pragma_user_version"));
  MOETUNE_ASSIGN_OR_RETURN(const bool is_row, statement.step());
  if (is_row) kind = {statement.number(0), statement.number(1), statement.number(2)};
  return kind;
}

Status migrate(Connection& connection, std::span<const Migration> steps) {
  MOETUNE_ASSIGN_OR_RETURN(FileKind kind, kind_of(connection));
  MOETUNE_RETURN_IF_ERROR(check_kind(kind, connection.path(), steps.size()));
  if (kind.version == static_cast<int64_t>(steps.size())) return {};
  MOETUNE_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(connection));
  MOETUNE_ASSIGN_OR_RETURN(kind, kind_of(connection));  // Another process may have been faster.
  MOETUNE_RETURN_IF_ERROR(check_kind(kind, connection.path(), steps.size()));
  for (auto version = static_cast<size_t>(kind.version); version < steps.size(); ++version) {
    MOETUNE_RETURN_IF_ERROR(steps[version](connection));
    MOETUNE_RETURN_IF_ERROR(
        connection.execute(fmt::format("PRAGMA user_version = {}", version + 1)));
  }
  return transaction.commit();
}

Status check_version(const Connection& connection) {
  MOETUNE_ASSIGN_OR_RETURN(const FileKind kind, kind_of(connection));
  const size_t newest = kMigrations.size();
  MOETUNE_RETURN_IF_ERROR(check_kind(kind, connection.path(), newest));
  if (kind.version == static_cast<int64_t>(newest)) return {};
  if (kind.is_empty()) {
    return Error{ErrorCode::kNotFound, fmt::format("{} is empty", connection.path()),
                 "`moetune tune` fills it"};
  }
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("{} is a journal of version {}, which is read only after an update to {}",
                  connection.path(), kind.version, newest),
      "open it once where it can be written"};
}

}  // namespace moetune::journal

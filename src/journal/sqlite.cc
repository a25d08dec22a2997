#include "journal/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>

#include "base/status_macros.h"
#include "base/system_error.h"

namespace moetune::journal {
namespace {

ErrorCode code_of(int result) {
  switch (result & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return ErrorCode::kParse;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ErrorCode::kDeadline;
    case SQLITE_NOMEM: return ErrorCode::kOutOfMemory;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_IOERR:
    case SQLITE_FULL:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH: return ErrorCode::kIo;
    default: return ErrorCode::kInternal;
  }
}

const char* hint_for(int result) {
  switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return "end or continue the process that holds it";
    case SQLITE_FULL: return "free some space, or name a file on another disk";
    case SQLITE_PERM:
    case SQLITE_CANTOPEN: return "check the permissions of the file and its folder";
    case SQLITE_READONLY: return "name a file in a place that can be written";
    default: return "";
  }
}

// What happened, with the system's own words where a system call failed.
Error error_of(sqlite3* database, int result, std::string_view path) {
  std::string words = sqlite3_errstr(result & 0xff);
  const int system = database == nullptr ? 0 : sqlite3_system_errno(database);
  const ErrorCode code = code_of(result);
  if (code == ErrorCode::kIo && system != 0)
    words = fmt::format("{} ({})", error_text(system), words);
  if (code == ErrorCode::kInternal && database != nullptr) words = sqlite3_errmsg(database);
  if (code == ErrorCode::kDeadline) words = "another process holds it locked";
  return {code, fmt::format("{}: {}", path, words), hint_for(result)};
}

std::string path_of(sqlite3* database) {
  const char* name = sqlite3_db_filename(database, "main");
  return name == nullptr ? "the journal" : name;
}

// The file as a URI. Absolute, because some names mean something else to SQLite (":memory:").
std::string uri_of(const std::string& path, std::string_view parameters) {
  std::string uri = "file://";
  for (const char c : std::filesystem::absolute(path).string()) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + std::string(parameters);
}

}  // namespace

void Statement::Finalizer::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

Statement& Statement::bind(int64_t value) {
  const int result = sqlite3_bind_int64(statement_.get(), ++bound_, value);
  if (first_error_ == SQLITE_OK) first_error_ = result;
  return *this;
}

Statement& Statement::bind(double value) {
  const int result = sqlite3_bind_double(statement_.get(), ++bound_, value);
  if (first_error_ == SQLITE_OK) first_error_ = result;
  return *this;
}

Statement& Statement::bind(std::string_view value) {
  const char* data = value.empty() ? "" : value.data();
  const int result = sqlite3_bind_text64(statement_.get(), ++bound_, data, value.size(),
                                         SQLITE_TRANSIENT, SQLITE_UTF8);
  if (first_error_ == SQLITE_OK) first_error_ = result;
  return *this;
}

Statement& Statement::bind_null() {
  const int result = sqlite3_bind_null(statement_.get(), ++bound_);
  if (first_error_ == SQLITE_OK) first_error_ = result;
  return *this;
}

Result<bool> Statement::step() {
  const int result = first_error_ != SQLITE_OK ? first_error_ : sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  Result<bool> answer = false;
  if (result != SQLITE_DONE) {
    sqlite3* database = sqlite3_db_handle(statement_.get());
    answer = error_of(database, result, path_of(database));
  }
  reset();
  return answer;
}

Status Statement::run() {
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, step());
    if (!is_row) return {};
  }
}

void Statement::reset() {
  sqlite3_reset(statement_.get());
  bound_ = 0;
  first_error_ = SQLITE_OK;
}

int64_t Statement::number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  const int bytes = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr ? std::string() : std::string(data, static_cast<size_t>(bytes));
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

void Connection::Closer::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Result<Connection> Connection::open(const std::string& path, Access access) {
  const bool writes = access == Access::kWrite;
  // The mutexes of SQLite would only guard what one thread at a time uses anyway.
  const int flags = (writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY) |
                    SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
  const std::string uri = uri_of(path, access == Access::kImmutable ? "?immutable=1" : "");
  sqlite3* raw = nullptr;
  const int result = sqlite3_open_v2(uri.c_str(), &raw, flags, nullptr);
  std::unique_ptr<sqlite3, Closer> database(raw);
  if (result != SQLITE_OK) return error_of(raw, result, path);
  sqlite3_extended_result_codes(raw, 1);
  return Connection(std::move(database), path);
}

void Connection::set_patience(std::chrono::milliseconds patience) {
  sqlite3_busy_timeout(database_.get(), static_cast<int>(patience.count()));
}

bool Connection::is_read_only() const { return sqlite3_db_readonly(database_.get(), "main") == 1; }

Result<Statement> Connection::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int result = sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (result != SQLITE_OK) return error_of(database_.get(), result, path_);
  return Statement(statement);
}

Status Connection::execute(const std::string& sql) {
  const int result = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return error_of(database_.get(), result, path_);
  return {};
}

Result<int64_t> Connection::number(std::string_view sql) const {
  MOETUNE_ASSIGN_OR_RETURN(Statement statement, prepare(sql));
  MOETUNE_ASSIGN_OR_RETURN(const bool is_row, statement.step());
  return is_row ? statement.number(0) : 0;
}

Result<std::string> Connection::text(std::string_view sql) const {
  MOETUNE_ASSIGN_OR_RETURN(Statement statement, prepare(sql));
  MOETUNE_ASSIGN_OR_RETURN(const bool is_row, statement.step());
  return is_row ? statement.text(0) : std::string();
}

int64_t Connection::last_id() const { return sqlite3_last_insert_rowid(database_.get()); }

int64_t Connection::changes() const { return sqlite3_changes64(database_.get()); }

Result<Transaction> Transaction::begin(Connection& connection) {
  if (connection.commit_.statement_ == nullptr) {
    MOETUNE_ASSIGN_OR_RETURN(connection.begin_, connection.prepare("BEGIN IMMEDIATE"));
    MOETUNE_ASSIGN_OR_RETURN(connection.commit_, connection.prepare("COMMIT"));
  }
  MOETUNE_RETURN_IF_ERROR(connection.begin_.run());
  return Transaction(connection);
}

// Some failures (a full disk, say) have rolled back by themselves; asking again is harmless.
Transaction::~Transaction() {
  if (connection_ != nullptr) (void)connection_->execute("ROLLBACK");
}

Status Transaction::commit() {
  MOETUNE_RETURN_IF_ERROR(connection_->commit_.run());
  connection_ = nullptr;
  return {};
}

}  // namespace moetune::journal

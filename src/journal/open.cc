// Opening a journal: what must hold before a file is trusted, and how SQLite is set up.
#include <fmt/format.h>
#include <sys/stat.h>

#include <thread>

#include "base/status_macros.h"
#include "journal/database.h"

namespace moetune::journal {
namespace {

// SQLite's words for "damaged" know no file; an error about permissions should name the owner.
Error about(const std::string& path, Error error) {
  if (error.code == ErrorCode::kParse) {
    error.message = fmt::format("{} (it is damaged, or no journal)", error.message);
    error.hint =
        "`moetune tune` sets it aside and begins a new one; `sqlite3 FILE .recover` may"
        " save what is in it";
  } else if (error.code == ErrorCode::kIo) {
    error.message += owner_note(path);
  }
  return error;
}

// SQLite does not wait for others here by itself.
Status set_journal_mode(Connection& connection, const std::string& mode,
                        std::chrono::milliseconds patience) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string now, connection.text("PRAGMA journal_mode"));
  if (now == mode) return {};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    Status status = connection.execute("PRAGMA journal_mode = " + mode);
    const bool is_busy = !status.ok() && status.error().code == ErrorCode::kDeadline;
    if (!is_busy || std::chrono::steady_clock::now() >= deadline) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// auto_vacuum comes first: it can be chosen only before the first page is written. It lets a prune
// give pages back in small steps, instead of rewriting the file while everybody waits.
// Where several machines see the file, a rollback journal: slower, and right.
Status set_up(Connection& connection, const FileKind& kind, std::chrono::milliseconds patience) {
  if (kind.is_empty()) {
    MOETUNE_RETURN_IF_ERROR(connection.execute("PRAGMA auto_vacuum = INCREMENTAL"));
  }
  const char* mode = is_on_network(connection.path()) ? "delete" : "wal";
  MOETUNE_RETURN_IF_ERROR(set_journal_mode(connection, mode, patience));
  return connection.execute(
      "PRAGMA synchronous = NORMAL;"
      "PRAGMA foreign_keys = ON;"
      "PRAGMA wal_autocheckpoint = 4000;"  // pages: one flush of the disk in a thousand puts
      "PRAGMA journal_size_limit = 4194304");
}

// A file that is shorter than its header says SQLite refuses by itself. What quick_check finds
// besides, reading a damaged page does, too, if the sizes of its cells are looked at then.
Status check_pages(Connection& connection, int64_t checked_bytes) {
  MOETUNE_RETURN_IF_ERROR(connection.execute("PRAGMA cell_size_check = ON"));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t pages, connection.number("PRAGMA page_count"));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t page_bytes, connection.number("PRAGMA page_size"));
  if (pages * page_bytes > checked_bytes) return {};
  MOETUNE_ASSIGN_OR_RETURN(const std::string found, connection.text("PRAGMA quick_check(1)"));
  if (found == "ok") return {};
  return Error{ErrorCode::kParse, fmt::format("{}: {}", connection.path(), found)};
}

Status make_ready(Connection& connection, const Database::Options& options) {
  if (connection.is_read_only()) {
    return Error{ErrorCode::kIo, fmt::format("{} can only be read", connection.path()),
                 "check its permissions, or name another file"};
  }
  MOETUNE_ASSIGN_OR_RETURN(const FileKind kind, kind_of(connection));
  MOETUNE_RETURN_IF_ERROR(check_kind(kind, connection.path(), options.steps.size()));
  MOETUNE_RETURN_IF_ERROR(set_up(connection, kind, options.patience));
  MOETUNE_RETURN_IF_ERROR(check_pages(connection, options.checked_bytes));
  return migrate(connection, options.steps);
}

Result<Connection> connect_to_read(const std::string& path, Connection::Access access,
                                   std::chrono::milliseconds patience, int64_t checked_bytes) {
  MOETUNE_ASSIGN_OR_RETURN(Connection connection, Connection::open(path, access));
  connection.set_patience(patience);
  MOETUNE_RETURN_IF_ERROR(check_version(connection));
  MOETUNE_RETURN_IF_ERROR(check_pages(connection, checked_bytes));
  return connection;
}

}  // namespace

Result<std::unique_ptr<Database>> Database::open(const std::string& path, const Options& options) {
  MOETUNE_RETURN_IF_ERROR(check_place(path, options.create));
  const bool is_new = !identity_of(path);
  Result<Connection> connection = Connection::open(path, Connection::Access::kWrite);
  if (!connection.ok()) return about(path, std::move(connection).error());
  // What was measured on a machine says what runs there: the owner's business. The log's files take
  // their permissions from this one.
  if (is_new) ::chmod(path.c_str(), 0600);
  const std::optional<FileIdentity> identity = identity_of(path);
  connection->set_patience(options.patience);
  Status ready = make_ready(*connection, options);
  if (!ready.ok()) return about(path, std::move(ready).error());
  std::unique_ptr<Database> database(
      new Database(std::move(connection).value(), identity.value_or(FileIdentity{})));
  MOETUNE_RETURN_IF_ERROR(database->prepare_statements());
  return database;
}

Result<std::unique_ptr<Database>> Database::open_to_read(const std::string& path,
                                                         std::chrono::milliseconds patience,
                                                         int64_t checked_bytes) {
  MOETUNE_RETURN_IF_ERROR(check_place(path, /*may_be_missing=*/false));
  const std::optional<FileIdentity> identity = identity_of(path);
  Result<Connection> connection =
      connect_to_read(path, Connection::Access::kRead, patience, checked_bytes);
  // A write-ahead log whose files can be neither seen nor made: nobody is writing, or it is none of
  // our business.
  if (!connection.ok() && connection.error().code == ErrorCode::kIo)
    connection = connect_to_read(path, Connection::Access::kImmutable, patience, checked_bytes);
  if (!connection.ok()) return about(path, std::move(connection).error());
  std::unique_ptr<Database> database(
      new Database(std::move(connection).value(), identity.value_or(FileIdentity{})));
  MOETUNE_RETURN_IF_ERROR(database->prepare_statements());
  return database;
}

}  // namespace moetune::journal

// SQLite's C interface with owners and with errors as values. Of the rest of the project only the
// .cc files of this folder know SQLite, and only sqlite.cc includes its header.
//
// Error codes, which decide what is done about a file (store.h):
//   kParse        damaged, or no SQLite database at all
//   kDeadline     another process held it for longer than the patience
//   kIo           the system refused: permissions, a full disk, a read-only place
//   kOutOfMemory  as it says
//   kInternal     everything else: a bug of ours
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "moetune/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace moetune::journal {

/// A prepared statement. Bind, then step() until there is no row, or run(); both leave it ready to
/// be bound and run again. One thread at a time.
class Statement {
 public:
  Statement() = default;
  /// Whether nothing was prepared.
  bool is_empty() const { return statement_ == nullptr; }

  /// The next parameter, from the left. What goes wrong here is told by step().
  Statement& bind(int64_t value);
  Statement& bind(int value) { return bind(static_cast<int64_t>(value)); }
  Statement& bind(double value);
  /// Copied.
  Statement& bind(std::string_view value);
  Statement& bind_null();

  /// True: a row is there to be read. False: the end; the statement is reset.
  Result<bool> step();
  /// For statements without rows, or whose rows are of no interest.
  Status run();
  /// Ends reading before the last row.
  void reset();

  // The columns of the row that is there, from 0.
  int64_t number(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  bool is_null(int column) const;

 private:
  friend class Connection;
  friend class Transaction;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
  int bound_ = 0;
  int first_error_ = 0;
};

/// One thread at a time.
class Connection {
 public:
  enum class Access : uint8_t {
    kWrite,      ///< Makes the file where it is missing.
    kRead,       ///< Needs to see, and perhaps to make, the files of the write-ahead log.
    kImmutable,  ///< The file alone, without locks: for places that nobody can write to.
  };
  /// Opens lazily, as SQLite does: most of what can be wrong with a file is told by the first
  /// statement.
  static Result<Connection> open(const std::string& path, Access access);

  const std::string& path() const { return path_; }
  /// How long a statement waits for other processes.
  void set_patience(std::chrono::milliseconds patience);
  /// Whether the file was opened for reading only because the system allows no more.
  bool is_read_only() const;

  Result<Statement> prepare(std::string_view sql) const;
  /// Statements whose results are of no interest.
  Status execute(const std::string& sql);
  /// The first column of the first row; 0 for no row.
  Result<int64_t> number(std::string_view sql) const;
  Result<std::string> text(std::string_view sql) const;

  int64_t last_id() const;
  /// Rows that the last statement inserted, changed or deleted.
  int64_t changes() const;

 private:
  friend class Transaction;
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  Connection(std::unique_ptr<sqlite3, Closer> database, std::string path)
      : database_(std::move(database)), path_(std::move(path)) {}

  std::unique_ptr<sqlite3, Closer> database_;
  std::string path_;
  Statement begin_;  // Of transactions, prepared when the first one begins.
  Statement commit_;
};

/// All or nothing: rolled back unless commit() succeeds.
class Transaction {
 public:
  /// Takes the write lock at once, so that no statement inside has to wait for it.
  static Result<Transaction> begin(Connection& connection);
  Transaction(Transaction&& other) noexcept
      : connection_(std::exchange(other.connection_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Connection& connection) : connection_(&connection) {}
  Connection* connection_;
};

}  // namespace moetune::journal

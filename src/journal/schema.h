// The tables of a journal, by version; docs/journal.md describes them.
#pragma once

#include <span>

#include "journal/sqlite.h"

namespace moetune::journal {

/// Makes version i + 1 of a file from version i, where i is its position in the list: the first
/// makes the tables in an empty file. Runs inside a transaction and must lose nothing.
using Migration = Status (*)(Connection&);

/// Adding a version is adding an entry.
std::span<const Migration> migrations();

/// What a file says of itself.
struct FileKind {
  int64_t application = 0;  ///< SQLite's application_id; 0 where nobody set one.
  int64_t version = 0;
  int64_t tables = 0;

  bool is_empty() const { return application == 0 && version == 0 && tables == 0; }
  bool is_journal() const;
};
Result<FileKind> kind_of(const Connection& connection);

/// kUnsupported for another program's file and for a version above `newest`; kParse for none.
Status check_kind(const FileKind& kind, const std::string& path, size_t newest);

/// Brings an empty file or an older version to the newest one. Several processes may do so at once.
/// Fails as check_kind() does, and then leaves the file as it is.
Status migrate(Connection& connection, std::span<const Migration> steps = migrations());

/// That what is there is a journal of the newest version, for those who may not change it.
Status check_version(const Connection& connection);

}  // namespace moetune::journal

// Where a journal is, and what the system thinks of it. Nothing here opens the file: closing a
// second descriptor of it would release the locks that SQLite holds through the first.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "moetune/result.h"

namespace moetune::journal {

/// $XDG_CACHE_HOME/moetune/journal.db (~/.cache where unset); nothing where HOME is unset too.
std::optional<std::string> default_path();

/// Tells a file from another one that took its name.
struct FileIdentity {
  dev_t device = 0;
  ino_t number = 0;
  bool operator==(const FileIdentity&) const = default;
};
/// Nothing where there is no file.
std::optional<FileIdentity> identity_of(const std::string& path);

/// That a journal can be there: a regular file that may be read, or none in a folder that is there.
/// kNotFound (file or folder), kInvalidArgument (something else than a file), kIo (naming the
/// owner where it is another user).
Status check_place(const std::string& path, bool may_be_missing);

/// " (it belongs to user 1000)", or nothing where the file is this user's own.
std::string owner_note(const std::string& path);

/// Whether several machines may see the file system of `path`. The shared memory of a write-ahead
/// log does not reach from one to the other.
bool is_on_network(const std::string& path);

/// Renames a damaged file, its log with it, to NAME.damaged-YYYYMMDD-HHMMSS (UTC) and returns that
/// name. Nothing is renamed, and an empty name returned, where another file than `damaged` is there
/// by now: another process was faster.
Result<std::string> set_aside(const std::string& path, const FileIdentity& damaged);

}  // namespace moetune::journal

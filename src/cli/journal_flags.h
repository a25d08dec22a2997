// Flags of the commands that have to do with the journal.
#pragma once

#include <memory>
#include <string>

#include "cli/command.h"
#include "journal/contents.h"
#include "journal/database.h"
#include "moetune/result.h"

namespace moetune::cli {

/// --journal: which file.
struct JournalFlags {
  std::string path;

  void declare(Flags& flags);
  /// The file that was named, or this user's; kNotFound where there is no place for one.
  Result<std::string> read() const;
  Result<std::unique_ptr<journal::Database>> open_to_read() const;
  /// kNotFound where it is missing, unless `create`; then its folder is made where nobody named it.
  Result<std::unique_ptr<journal::Database>> open_to_write(bool create) const;
};

/// --problem, --device: which entries.
struct FilterFlags {
  std::string problem;
  std::string device;

  void declare(Flags& flags);
  bool any() const { return !problem.empty() || !device.empty(); }
  journal::Filter read() const { return {.problem = problem, .device = device}; }
};

}  // namespace moetune::cli

#include "cli/journal_flags.h"

#include "base/file.h"
#include "base/status_macros.h"
#include "journal/place.h"

namespace moetune::cli {
namespace {

// A person waits: longer than tuning may, which has better things to do.
constexpr std::chrono::milliseconds kPatience{10000};

}  // namespace

void JournalFlags::declare(Flags& flags) {
  flags.value("--journal", "FILE", &path, "The journal; default: this user's");
}

Result<std::string> JournalFlags::read() const {
  if (!path.empty()) return path;
  if (const auto usual = journal::default_path()) return *usual;
  return Error{ErrorCode::kNotFound,
               "no place for a journal: neither XDG_CACHE_HOME nor HOME is set",
               "name a file with --journal"};
}

Result<std::unique_ptr<journal::Database>> JournalFlags::open_to_read() const {
  MOETUNE_ASSIGN_OR_RETURN(const std::string file, read());
  return journal::Database::open_to_read(file, kPatience);
}

Result<std::unique_ptr<journal::Database>> JournalFlags::open_to_write(bool create) const {
  MOETUNE_ASSIGN_OR_RETURN(const std::string file, read());
  if (create && path.empty()) MOETUNE_RETURN_IF_ERROR(make_private_folders(parent_folder(file)));
  return journal::Database::open(file, {.create = create, .patience = kPatience});
}

void FilterFlags::declare(Flags& flags) {
  flags.value(
      "--problem", "TEXT", &problem,
      "Only problems whose key has this in it, as in hidden=2048; `journal list` shows keys");
  flags.value("--device", "TEXT", &device, "Only devices whose key has this in it, as in isa=avx2");
}

}  // namespace moetune::cli

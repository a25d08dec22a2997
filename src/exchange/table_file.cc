#include "exchange/table_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/status_macros.h"

namespace moetune::exchange {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostKept = size_t{16} << 20;
constexpr int kMostBackups = 1000;

/// A name that nothing has yet.
Result<std::string> free_backup(const std::string& path) {
  std::error_code error;
  for (int i = 1; i <= kMostBackups; ++i) {
    std::string name = i == 1 ? path + ".bak" : fmt::format("{}.bak.{}", path, i);
    if (!fs::exists(fs::symlink_status(name, error))) return name;
  }
  return Error{ErrorCode::kIo, fmt::format("{} has {} backups already", path, kMostBackups),
               "move some of them away"};
}

Status make_folders(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  std::error_code gone;
  if (fs::is_directory(folder, gone)) return {};
  return Error{ErrorCode::kIo,
               fmt::format("cannot make the folder {}: {}", folder, error.message()),
               "name another folder"};
}

}  // namespace

const char* to_string(WrittenFile::Outcome outcome) {
  switch (outcome) {
    case WrittenFile::Outcome::kNew: return "new";
    case WrittenFile::Outcome::kUnchanged: return "unchanged";
    case WrittenFile::Outcome::kReplaced: return "replaced";
  }
  return "new";
}

Result<WrittenFile> write_table_file(const std::string& path, std::string_view content) {
  WrittenFile written;
  MOETUNE_RETURN_IF_ERROR(make_folders(parent_folder(path)));
  Result<std::string> present = read_file(path, kMostKept);
  if (present.ok()) {
    if (*present == content) return WrittenFile{WrittenFile::Outcome::kUnchanged, ""};
    MOETUNE_ASSIGN_OR_RETURN(written.backup, free_backup(path));
    MOETUNE_RETURN_IF_ERROR(replace_file(written.backup, *present));
    written.outcome = WrittenFile::Outcome::kReplaced;
  } else if (present.error().code != ErrorCode::kNotFound) {
    return std::move(present).error();  // Whatever it is, it is not ours to replace.
  }
  MOETUNE_RETURN_IF_ERROR(replace_file(path, content));
  return written;
}

}  // namespace moetune::exchange

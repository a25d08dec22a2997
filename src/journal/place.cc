#include "journal/place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "base/environment.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace moetune::journal {
namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string utc_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return std::string(text.data(), length);
}

std::string free_name(const std::string& path) {
  const std::string wanted = fmt::format("{}.damaged-{}", path, utc_stamp());
  std::string name = wanted;
  for (int i = 2; exists(name); ++i) name = fmt::format("{}-{}", wanted, i);
  return name;
}

Status rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return {};
  return Error{ErrorCode::kIo,
               fmt::format("cannot rename {} to {}: {}", from, to, error_text(errno)),
               "move it away by hand"};
}

}  // namespace

std::optional<std::string> default_path() {
  std::optional<std::string> folder = cache_folder();
  if (folder) *folder += "/journal.db";
  return folder;
}

std::optional<FileIdentity> identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino};
}

Status check_place(const std::string& path, bool may_be_missing) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) {
      return Error{ErrorCode::kIo, fmt::format("cannot look at {}: {}", path, error_text(error)),
                   "check the permissions of its folder"};
    }
    const std::string folder = parent_folder(path);
    if (!may_be_missing) {
      return Error{ErrorCode::kNotFound, fmt::format("there is no journal {}", path),
                   "`moetune tune` makes one"};
    }
    if (::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
      return Error{ErrorCode::kNotFound, fmt::format("{}: there is no folder {}", path, folder),
                   fmt::format("mkdir -p '{}'", folder)};
    }
    return {};
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is no regular file", path),
                 "name a file"};
  }
  if (::access(path.c_str(), R_OK) != 0) {
    return Error{ErrorCode::kIo,
                 fmt::format("cannot read {}{}: {}", path, owner_note(path), error_text(errno)),
                 "ask its owner, or name another file"};
  }
  return {};
}

std::string owner_note(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_uid == ::geteuid()) return {};
  return fmt::format(" (it belongs to user {})", status.st_uid);
}

bool is_on_network(const std::string& path) {
  struct statfs status {};
  const bool is_there = ::statfs(path.c_str(), &status) == 0;
  if (!is_there && ::statfs(parent_folder(path).c_str(), &status) != 0) return false;
  // The kernel's linux/magic.h and the makers' own headers: NFS, SMB 1, 2 and 3, Lustre, Ceph,
  // GPFS, BeeGFS, AFS twice, 9P, FUSE, OCFS2, GFS2. FUSE may be local; then this costs speed alone.
  constexpr std::array<uint32_t, 14> kShared = {
      0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x0BD00BD0, 0x00C36400, 0x47504653,
      0x19830326, 0x5346414F, 0x6B414653, 0x01021997, 0x65735546, 0x7461636F, 0x01161970};
  for (const uint32_t type : kShared) {
    if (static_cast<uint32_t>(status.f_type) == type) return true;
  }
  return false;
}

Result<std::string> set_aside(const std::string& path, const FileIdentity& damaged) {
  MOETUNE_ASSIGN_OR_RETURN(const FileLock lock,
                           FileLock::acquire(path + ".lock", std::chrono::seconds(2)));
  if (identity_of(path) != damaged) return std::string();
  const std::string aside = free_name(path);
  // The log first: one that is left beside a new file would be replayed into it.
  for (const char* suffix : {"-wal", "-journal", "-shm", ""})
    MOETUNE_RETURN_IF_ERROR(rename(path + suffix, aside + suffix));
  return aside;
}

}  // namespace moetune::journal

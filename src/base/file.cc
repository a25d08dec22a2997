#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/descriptor.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace moetune {
namespace {

// Removes a file that was not renamed to its place.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

const char* hint(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return "check the permissions of the file and its folder";
    case EROFS: return "the file system is read-only; name a place that can be written";
    case ENOSPC:
    case EDQUOT: return "free some space, or name a place on another disk";
    case ENOENT:
    case ENOTDIR: return "check the path";
    default: return "";
  }
}

Error io_error(std::string_view action, const std::string& path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  return {missing ? ErrorCode::kNotFound : ErrorCode::kIo,
          fmt::format("cannot {} {}: {}", action, path, error_text(error)), hint(error)};
}

Error too_large(const std::string& path, size_t max_bytes) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} is larger than the {} bytes that are read", path, max_bytes),
          "check that this is the file you meant"};
}

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int number = -1;
  do {
    number = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (number < 0 && errno == EINTR);
  return number;
}

Status write_all(int descriptor, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return io_error("write", path, errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// Where a symbolic link leads, so that replacing writes through it.
std::string resolved(const std::string& path) {
  std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

std::string unique_neighbour(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.{}-{}.new", path, ::getpid(), counter.fetch_add(1));
}

// A rename is on the disk only when its folder is. Some file systems refuse to flush folders; the
// rename holds all the same.
void flush_folder(const std::string& path) {
  Descriptor folder(open_retrying(parent_folder(path), O_RDONLY | O_DIRECTORY));
  if (folder.ok()) ::fsync(folder.get());
}

}  // namespace

std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  Descriptor file(open_retrying(path, O_RDONLY));
  if (!file.ok()) return io_error("open", path, errno);
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return io_error("examine", path, errno);
  if (S_ISDIR(status.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is a folder, not a file", path)};
  }
  if (status.st_size > 0 && static_cast<size_t>(status.st_size) > max_bytes) {
    return too_large(path, max_bytes);
  }
  // Pipes and files of /proc have no size beforehand: read until the end.
  std::string content;
  content.reserve(static_cast<size_t>(status.st_size) + 1);
  char block[1 << 16];
  while (true) {
    const ssize_t count = ::read(file.get(), block, sizeof(block));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("read", path, errno);
    if (count == 0) return content;
    if (content.size() + static_cast<size_t>(count) > max_bytes) return too_large(path, max_bytes);
    content.append(block, static_cast<size_t>(count));
  }
}

Status replace_file(const std::string& path, std::string_view content) {
  const std::string target = resolved(path);
  struct stat status = {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a regular file", path),
                 "name a file"};
  }
  const std::string beside = unique_neighbour(target);
  Descriptor file(open_retrying(beside, O_WRONLY | O_CREAT | O_EXCL, 0644));
  if (!file.ok()) return io_error("make", beside, errno);
  TemporaryFile temporary(beside);
  if (exists && ::fchmod(file.get(), status.st_mode & 07777) != 0) {
    return io_error("set the permissions of", beside, errno);
  }
  MOETUNE_RETURN_IF_ERROR(write_all(file.get(), content, beside));
  if (::fsync(file.get()) != 0) return io_error("flush", beside, errno);
  if (::close(file.release()) != 0) return io_error("close", beside, errno);
  if (::rename(beside.c_str(), target.c_str()) != 0) return io_error("replace", path, errno);
  temporary.keep();
  flush_folder(target);
  return {};
}

Status make_private_folders(const std::string& path) {
  for (size_t end = path.find('/', 1); true; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      // A parent that exists may refuse mkdir for other reasons (a read-only root, say).
      const int error = errno;
      struct stat status = {};
      if (::stat(folder.c_str(), &status) != 0) return io_error("make the folder", folder, error);
    }
    if (end == std::string::npos) break;
  }
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return io_error("make the folder", path, errno);
  if (!S_ISDIR(status.st_mode)) return io_error("make the folder", path, ENOTDIR);
  return {};
}

namespace {

// Byte 0 of a lock file is the lock. Byte 1 is the turn: held while waiting for the lock and given
// up with having it, so that who takes the lock again and again lets who waits go first.
constexpr off_t kLockByte = 0, kTurnByte = 1;

int lock_byte(const Descriptor& file, short type, off_t byte) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  return ::fcntl(file.get(), F_OFD_SETLK, &range);
}

// Whether this open file now has the byte. Such locks belong to the open file and end with it.
Result<bool> try_take(const Descriptor& file, const std::string& path, off_t byte) {
  while (lock_byte(file, F_WRLCK, byte) != 0) {
    if (errno == EAGAIN || errno == EACCES) return false;
    if (errno != EINTR) return io_error("lock", path, errno);
  }
  return true;
}

// Asking again and again, instead of waiting in the kernel, keeps a stopped process from stopping
// this one too.
Result<bool> take_until(const Descriptor& file, const std::string& path, off_t byte,
                        std::chrono::steady_clock::time_point deadline) {
  constexpr std::chrono::milliseconds kPause{5};
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool taken, try_take(file, path, byte));
    if (taken || std::chrono::steady_clock::now() >= deadline) return taken;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Result<FileLock> FileLock::acquire(const std::string& path, std::chrono::milliseconds patience) {
  Descriptor file(open_retrying(path, O_RDWR | O_CREAT, 0644));
  if (!file.ok()) return io_error("open the lock", path, errno);
  const auto start = std::chrono::steady_clock::now();
  // Who has the turn may be stopped: whoever has waited for it long enough goes without.
  MOETUNE_ASSIGN_OR_RETURN([[maybe_unused]] const bool has_turn,
                           take_until(file, path, kTurnByte, start + patience / 2));
  MOETUNE_ASSIGN_OR_RETURN(const bool taken, take_until(file, path, kLockByte, start + patience));
  lock_byte(file, F_UNLCK, kTurnByte);
  if (taken) return FileLock(file.release());
  return Error{ErrorCode::kDeadline,
               fmt::format("other processes hold {} for more than {} ms", path, patience.count()),
               "end them or try again later"};
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace moetune

// Files: bounded reading, replacing a file so that readers see the old or the new one and never a
// part, and a lock between processes.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "moetune/result.h"

namespace moetune {

/// The whole content. kNotFound where there is no such file, kInvalidArgument for a folder or a
/// file of more than `max_bytes`, kIo for what the system refuses.
Result<std::string> read_file(const std::string& path, size_t max_bytes);

/// Replaces (or makes) the file: written beside it, flushed to the disk, renamed over it. A crash
/// at any moment leaves the old or the new content. Follows a symbolic link, and keeps the
/// permissions of a file that was there. kIo with the system's words.
Status replace_file(const std::string& path, std::string_view content);

/// Makes the folder and its missing parents, each for its owner only (0700). Folders that exist are
/// left as they are.
Status make_private_folders(const std::string& path);

/// The part before the last '/', "." where there is none.
std::string parent_folder(const std::string& path);

/// An exclusive lock between processes (and between threads), held until destroyed. The system
/// releases it when a process dies. The lock file itself stays: removing it would let two processes
/// lock two different files of one name. It is byte 0 of the file, by F_OFD_SETLK; byte 1 is the
/// turn to wait for it, so that who takes it again and again does not pass over who waits.
class FileLock {
 public:
  /// Makes `path` if need be and waits for the lock. kDeadline when others hold it for longer
  /// than `patience`.
  static Result<FileLock> acquire(const std::string& path, std::chrono::milliseconds patience);

  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace moetune

// A whole file as read-only memory, so that only what is looked at is ever read from the disk.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "moetune/result.h"

namespace moetune {

/// Owns a mapping. The bytes stay valid as long as it lives; const members may be called at once.
/// A file that somebody shortens while it is mapped is beyond what can be caught: reading what is
/// gone ends the process (SIGBUS), as with every mapping.
class MappedFile {
 public:
  /// kNotFound where there is no such file, kInvalidArgument for what is no ordinary file, kIo for
  /// what the system refuses. An empty file maps to no bytes.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Says that the pages of `part` of bytes() are not needed for now: they stop counting as this
  /// process's memory. They can still be read.
  void release(std::span<const std::byte> part) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace moetune

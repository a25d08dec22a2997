#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/descriptor.h"
#include "base/system_error.h"

namespace moetune {
namespace {

Error cannot(const char* action, const std::string& path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  return {missing ? ErrorCode::kNotFound : ErrorCode::kIo,
          fmt::format("cannot {} {}: {}", action, path, error_text(error)),
          error == EACCES ? "check the permissions of the file and its folder" : ""};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  int number = -1;
  do {
    // Not to wait for the other end of a pipe that bears a file's name.
    number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (number < 0 && errno == EINTR);
  const Descriptor file(number);
  if (!file.ok()) return cannot("open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return cannot("examine", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is no ordinary file", path),
                 "name a file"};
  }
  if (status.st_size == 0) return MappedFile({});
  const auto size = static_cast<size_t>(status.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (start == MAP_FAILED) return cannot("map", path, errno);
  return MappedFile({static_cast<const std::byte*>(start), size});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data()) + part.size();
  // A hint: what the system does not do costs memory, nothing else.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace moetune

#include "cuda/cubin_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "cuda/sha256.h"

namespace moetune::cuda {
namespace {

constexpr std::string_view kMagic = "moetune-cubin-1\n";
constexpr std::string_view kSuffix = ".cubin";
constexpr std::string_view kTemporary = ".new-";
constexpr size_t kHeaderBytes = kMagic.size() + sizeof(Sha256::Digest);
constexpr int64_t kLargestEntry = int64_t{256} << 20;
// Other processes add too, so the folder's size is read again after this many additions of our own.
constexpr int kPutsBetweenReads = 64;
// Removing down to this share of the limit keeps the next additions from removing again at once.
constexpr double kKeptShare = 0.8;
// A file that a killed process left half written is nobody's after this time.
constexpr time_t kAbandonedSeconds = 3600;
// Reading an entry marks it as used, at most this often: a mark is a write.
constexpr time_t kMarkSeconds = 60;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  bool ok() const { return number_ >= 0; }

 private:
  int number_;
};

// Why content from this file or folder must not be trusted; empty where it may be.
std::string why_not_private(const struct stat& status) {
  if (status.st_uid != ::geteuid()) return fmt::format("belongs to user {}", status.st_uid);
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("can be written by others (mode {:o})", status.st_mode & 07777);
  return {};
}

bool read_all(int descriptor, std::vector<uint8_t>& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::read(descriptor, bytes.data() + at, bytes.size() - at);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
    if (got > 0) at += static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int descriptor, const void* data, size_t size) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (size > 0) {
    const ssize_t put = ::write(descriptor, at, size);
    if (put < 0 && errno != EINTR) return false;
    if (put > 0) {
      at += put;
      size -= static_cast<size_t>(put);
    }
  }
  return true;
}

Sha256::Digest checksum(const std::string& key, std::span<const uint8_t> content) {
  // The key is part of it: an entry copied to another's name is a damaged one.
  return Sha256().add_text(key).add(std::as_bytes(content)).digest();
}

struct Entry {
  std::string name;
  int64_t bytes;
  int64_t used_ns;
};

}  // namespace

Result<CubinCache> CubinCache::open(const std::string& folder, int64_t max_bytes) {
  MOETUNE_RETURN_IF_ERROR(make_private_folders(folder));
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0)
    return Error{ErrorCode::kIo, fmt::format("cannot open {}: {}", folder, error_text(errno))};
  CubinCache cache(folder, descriptor, max_bytes);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot look at {}: {}", folder, error_text(errno))};
  }
  if (const std::string why = why_not_private(status); !why.empty()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the cache folder {} {}: it is not used", folder, why),
                 "compiled kernels run with your rights: make the folder yours alone (chown, chmod "
                 "700), or set "
                 "XDG_CACHE_HOME to another place"};
  }
  return cache;
}

CubinCache::CubinCache(CubinCache&& other) noexcept
    : folder_(std::move(other.folder_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      max_bytes_(other.max_bytes_),
      known_bytes_(other.known_bytes_),
      puts_since_read_(other.puts_since_read_) {}

CubinCache::~CubinCache() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

CubinCache::Found CubinCache::find(const std::string& key) {
  const std::string name = key + std::string(kSuffix);
  const Descriptor file(::openat(descriptor_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.ok()) return {};
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  if (const std::string why = why_not_private(status); !why.empty()) {
    return {std::nullopt, fmt::format("{}/{} {}: not used", folder_, name, why)};
  }

  const auto damaged = [&](std::string_view how) -> Found {
    ::unlinkat(descriptor_, name.c_str(), 0);
    return {std::nullopt,
            fmt::format("{}/{} was damaged ({}) and is made anew", folder_, name, how)};
  };
  if (status.st_size < static_cast<off_t>(kHeaderBytes) || status.st_size > kLargestEntry)
    return damaged("wrong size");
  std::vector<uint8_t> bytes(static_cast<size_t>(status.st_size));
  if (!read_all(file.get(), bytes)) return damaged("cannot be read");
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return damaged("wrong beginning");
  const std::vector<uint8_t> content(bytes.begin() + kHeaderBytes, bytes.end());
  const Sha256::Digest sum = checksum(key, content);
  if (std::memcmp(bytes.data() + kMagic.size(), sum.data(), sum.size()) != 0)
    return damaged("wrong checksum");

  if (std::time(nullptr) - status.st_mtime > kMarkSeconds) ::futimens(file.get(), nullptr);
  return {content, {}};
}

Status CubinCache::put(const std::string& key, const std::vector<uint8_t>& content) {
  static std::atomic<unsigned> counter{0};
  const std::string name = key + std::string(kSuffix);
  const std::string temporary =
      fmt::format("{}{}-{}-{}", kTemporary, ::getpid(), counter++, key.substr(0, 8));
  const auto fail = [&](int error) {
    ::unlinkat(descriptor_, temporary.c_str(), 0);
    return Error{ErrorCode::kIo,
                 fmt::format("cannot write to the cache folder {}: {}", folder_, error_text(error)),
                 "kernels are compiled again at the next start; free some space, make the folder "
                 "writable, or set "
                 "XDG_CACHE_HOME to another place"};
  };
  const Sha256::Digest sum = checksum(key, content);
  {
    const Descriptor file(
        ::openat(descriptor_, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    // No flush to the disk: after a crash of the machine the checksum tells, and the entry is made
    // anew.
    if (!file.ok() || !write_all(file.get(), kMagic.data(), kMagic.size()) ||
        !write_all(file.get(), sum.data(), sum.size()) ||
        !write_all(file.get(), content.data(), content.size())) {
      return fail(errno);
    }
  }
  if (::renameat(descriptor_, temporary.c_str(), descriptor_, name.c_str()) != 0)
    return fail(errno);
  make_room(static_cast<int64_t>(kHeaderBytes + content.size()));
  return {};
}

void CubinCache::make_room(int64_t added) {
  const std::lock_guard lock(mutex_);
  if (known_bytes_ >= 0) known_bytes_ += added;
  if (known_bytes_ < 0 || known_bytes_ > max_bytes_ || ++puts_since_read_ >= kPutsBetweenReads)
    remove_oldest();
}

void CubinCache::remove_oldest() {
  puts_since_read_ = 0;
  known_bytes_ = 0;
  // A descriptor of its own: reading moves a position that all users of a descriptor share.
  const int copy = ::openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = copy < 0 ? nullptr : ::fdopendir(copy);
  if (folder == nullptr) {
    if (copy >= 0) ::close(copy);
    return;
  }
  std::vector<Entry> entries;
  while (const dirent* item = ::readdir(folder)) {
    struct stat status {};
    const std::string name = item->d_name;
    if (::fstatat(descriptor_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    if (name.starts_with(kTemporary)) {
      if (std::time(nullptr) - status.st_mtime > kAbandonedSeconds)
        ::unlinkat(descriptor_, name.c_str(), 0);
    } else if (name.ends_with(kSuffix)) {
      entries.push_back(
          {name, status.st_size, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
      known_bytes_ += status.st_size;
    }
  }
  ::closedir(folder);
  if (known_bytes_ <= max_bytes_) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used_ns < b.used_ns; });
  const auto kept = static_cast<int64_t>(kKeptShare * static_cast<double>(max_bytes_));
  for (const Entry& entry : entries) {
    if (known_bytes_ <= kept) break;
    ::unlinkat(descriptor_, entry.name.c_str(), 0);
    known_bytes_ -= entry.bytes;
  }
}

}  // namespace moetune::cuda

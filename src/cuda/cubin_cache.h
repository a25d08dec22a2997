// Compiled kernels on disk: one file per program, named by the SHA-256 of everything it was made
// from.
//
// Any number of processes use one folder at once, without locks: a file appears whole, by renaming,
// and holds the checksum of its content. The folder and its files belong to the user alone; one
// that others own or can write is not used, for its content runs with the user's rights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "moetune/result.h"

namespace moetune::cuda {

/// Thread-safe.
class CubinCache {
 public:
  /// Makes the folder if need be (0700). kIo where it cannot be made or opened; kUnsupported where
  /// others own it or can write to it. `max_bytes`: older entries go when it is exceeded.
  static Result<CubinCache> open(const std::string& folder, int64_t max_bytes);
  CubinCache(CubinCache&& other) noexcept;
  CubinCache& operator=(CubinCache&&) = delete;
  ~CubinCache();

  struct Found {
    std::optional<std::vector<uint8_t>> content;  ///< Nothing: not there, or not to be trusted.
    std::string note;  ///< Why an entry was not trusted; empty otherwise.
  };
  /// The content stored under `key` (hexadecimal). A damaged entry is removed. Marks the entry as
  /// used.
  Found find(const std::string& key);

  /// Stores, replacing what is there. kIo where the folder cannot be written.
  Status put(const std::string& key, const std::vector<uint8_t>& content);

  const std::string& folder() const { return folder_; }

 private:
  CubinCache(std::string folder, int descriptor, int64_t max_bytes)
      : folder_(std::move(folder)), descriptor_(descriptor), max_bytes_(max_bytes) {}
  void make_room(int64_t added);
  void remove_oldest();

  std::string folder_;
  int descriptor_;
  int64_t max_bytes_;
  std::mutex mutex_;
  int64_t known_bytes_ = -1;  // What the folder held when it was last read, and what was added
                              // since; -1: not read yet.
  int puts_since_read_ = 0;
};

}  // namespace moetune::cuda

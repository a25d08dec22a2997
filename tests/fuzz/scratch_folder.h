// A folder for files that live as long as the process, in memory where the system has such a place.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz/fuzz_target.h"

namespace moetune::fuzz {

class ScratchFolder {
 public:
  ScratchFolder() {
    const char* elsewhere = std::getenv("TMPDIR");
    const bool has_memory = ::access("/dev/shm", W_OK) == 0;
    std::string name = has_memory ? "/dev/shm" : elsewhere != nullptr ? elsewhere : "/tmp";
    name += "/moetune-fuzz-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr, "there is room for a temporary folder", name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      std::filesystem::remove_all(entry.path());
  }

 private:
  std::filesystem::path path_;
};

}  // namespace moetune::fuzz

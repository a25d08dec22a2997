// Finding and opening NVIDIA's libraries at run time: from the system, a toolkit, or pip's and
// conda's packages.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "moetune/result.h"

namespace moetune::cuda {

/// An opened library. Never closed again: NVIDIA's libraries keep threads and thread-local state
/// that outlive dlclose().
class SharedLibrary {
 public:
  /// `name` is a path or a name the system's loader looks up. kNotFound with the loader's words.
  static Result<SharedLibrary> open(const std::string& name);

  /// The address of an exported symbol, nullptr where there is none.
  void* symbol(const char* name) const;
  /// The file that was opened, as the loader knows it.
  const std::string& path() const { return path_; }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

/// Where one library may be, in the order to try: $MOETUNE_CUDA_PATH, the system's loader
/// ($LD_LIBRARY_PATH, ldconfig), the driver's usual folders, $CUDA_HOME, /usr/local/cuda*, Python
/// packages (nvidia/*/lib). Apart from the second, only files that exist.
std::vector<std::string> library_candidates(const std::string& soname);

/// The first of library_candidates() that opens. kNotFound with the last reason.
Result<SharedLibrary> open_library(const std::string& soname);

}  // namespace moetune::cuda

#include "cuda/cublaslt.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "cuda/shared_library.h"

namespace moetune::cuda {
namespace {

constexpr int kOldestMajor = 12;

Result<CublasLt> bind(const SharedLibrary& library) {
  CublasLt functions;
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* address = library.symbol(name);
    if (address == nullptr && missing == nullptr) missing = name;
    return address;
  };
#define MOETUNE_BIND(name, ...) \
  functions.name = reinterpret_cast<decltype(functions.name)>(find(#name));
  MOETUNE_CUBLASLT_FUNCTIONS(MOETUNE_BIND)
#undef MOETUNE_BIND
  functions.cublasLtGetVersion =
      reinterpret_cast<decltype(functions.cublasLtGetVersion)>(find("cublasLtGetVersion"));
  if (missing) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} does not export {}", library.path(), missing)};
  }
  return functions;
}

Result<CublasLt> open_newest() {
  MOETUNE_ASSIGN_OR_RETURN(const Driver* driver, load_driver());
  std::string reason;
  for (int major = driver->cuda_major(); major >= kOldestMajor; --major) {
    auto library = open_library(fmt::format("libcublasLt.so.{}", major));
    if (library.ok()) return bind(*library);
    if (reason.empty()) reason = library.error().message;
  }
  return Error{ErrorCode::kUnsupported, fmt::format("cuBLASLt is not here ({})", reason),
               fmt::format("install it with: python3 -m pip install {}",
                           driver->cuda_major() <= 12 ? "nvidia-cublas-cu12" : "nvidia-cublas")};
}

}  // namespace

std::string CublasLt::version_text() const {
  const size_t version = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<const CublasLt*> load_cublaslt() {
  static const Result<CublasLt> loaded = open_newest();
  if (!loaded.ok()) return loaded.error();
  return &loaded.value();
}

}  // namespace moetune::cuda

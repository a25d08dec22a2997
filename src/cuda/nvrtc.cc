#include "cuda/nvrtc.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/driver.h"

namespace moetune::cuda {
namespace {

constexpr int kOldestMajor = 12;
constexpr int kNewestMajor = 15;  // Looked for where no driver sets a bound.

std::string install_hint(int major) {
  return fmt::format(
      "install it with: python3 -m pip install {} (any Python environment on the PATH is "
      "searched), or set "
      "MOETUNE_CUDA_PATH to a folder with libnvrtc.so.{}",
      major <= 12 ? "nvidia-cuda-nvrtc-cu12" : fmt::format("'nvidia-cuda-nvrtc=={}.*'", major),
      major);
}

Result<Nvrtc> open_major(int major) {
  auto library = open_library(fmt::format("libnvrtc.so.{}", major));
  if (!library.ok()) return std::move(library).error();
  return bind_nvrtc(*library);
}

}  // namespace

bool Nvrtc::supports(const Architecture& arch) const {
  return std::find(architectures.begin(), architectures.end(), arch.sm()) != architectures.end();
}

std::string Nvrtc::version_text() const { return fmt::format("{}.{}", major, minor); }

Result<Nvrtc> bind_nvrtc(const SharedLibrary& library) {
  Nvrtc nvrtc;
  nvrtc.path = library.path();
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* address = library.symbol(name);
    if (address == nullptr && missing == nullptr) missing = name;
    return address;
  };
#define MOETUNE_BIND(name, ...) nvrtc.name = reinterpret_cast<decltype(nvrtc.name)>(find(#name));
  MOETUNE_NVRTC_FUNCTIONS(MOETUNE_BIND)
#undef MOETUNE_BIND
  nvrtc.nvrtcGetErrorString =
      reinterpret_cast<decltype(nvrtc.nvrtcGetErrorString)>(find("nvrtcGetErrorString"));
  if (missing) {
    return Error{ErrorCode::kUnsupported, fmt::format("{} does not export {}", nvrtc.path, missing),
                 install_hint(kOldestMajor)};
  }

  int count = 0;
  if (nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor) != 0 ||
      nvrtc.nvrtcGetNumSupportedArchs(&count) != 0) {
    return Error{ErrorCode::kUnsupported, fmt::format("{} does not answer", nvrtc.path),
                 install_hint(kOldestMajor)};
  }
  nvrtc.architectures.resize(static_cast<size_t>(count));
  nvrtc.nvrtcGetSupportedArchs(nvrtc.architectures.data());
  return nvrtc;
}

Result<Nvrtc> find_nvrtc(int driver_major) {
  const int newest = driver_major > 0 ? driver_major : kNewestMajor;
  const int wanted = driver_major > 0 ? driver_major : 13;
  Error last{ErrorCode::kNotFound, "libnvrtc was not found"};
  for (int major = newest; major >= kOldestMajor; --major) {
    auto nvrtc = open_major(major);
    if (nvrtc.ok()) return nvrtc;
    // The failure of the version that fits best says most.
    if (major == wanted) last = std::move(nvrtc).error();
  }
  for (int major = newest + 1; major <= kNewestMajor; ++major) {
    if (const auto nvrtc = open_major(major); nvrtc.ok()) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format(
              "NVRTC {} ({}) is of a newer major version than the driver, which takes code of CUDA "
              "{} at most",
              nvrtc->version_text(), nvrtc->path, driver_major),
          fmt::format("{}; or update the driver", install_hint(driver_major))};
    }
  }
  return Error{ErrorCode::kUnsupported,
               fmt::format("NVRTC, CUDA's run-time compiler, is not here ({})", last.message),
               install_hint(wanted)};
}

Result<const Nvrtc*> load_nvrtc() {
  static const Result<Nvrtc> loaded = [] {
    const auto driver = load_driver();
    return find_nvrtc(driver.ok() ? (*driver)->cuda_major() : 0);
  }();
  if (!loaded.ok()) return loaded.error();
  return &loaded.value();
}

}  // namespace moetune::cuda

#include "cuda/driver.h"

#include <fmt/format.h>

#include <utility>

#include "cuda/driver_open.h"
#include "cuda/shared_library.h"

namespace moetune::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

Error unsupported(std::string message, std::string hint) {
  return {ErrorCode::kUnsupported, std::move(message), std::move(hint)};
}

Error too_old(std::string_view what) {
  return unsupported(fmt::format("the NVIDIA driver is too old: {}; CUDA {}.{} is needed", what,
                                 kOldestDriverVersion / 1000, kOldestDriverVersion % 1000 / 10),
                     "install NVIDIA driver 525 or newer (nvidia-smi shows the one that is there)");
}

std::string words(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName) driver.cuGetErrorName(result, &name);
  if (driver.cuGetErrorString) driver.cuGetErrorString(result, &text);
  return fmt::format("{} ({}){}{}", name ? name : "CUDA error", result, text ? ": " : "",
                     text ? text : "");
}

Error initialisation_error(const Driver& driver, CUresult result) {
  switch (result) {
    case kCudaNoDevice:
      return unsupported(
          "the NVIDIA driver finds no GPU",
          "check that nvidia-smi lists one and that CUDA_VISIBLE_DEVICES does not hide it");
    case kCudaStubLibrary:
      return unsupported(
          "libcuda.so.1 is a toolkit's stub, not a driver",
          "take the toolkit's lib/stubs folder out of LD_LIBRARY_PATH and MOETUNE_CUDA_PATH");
    default:
      return unsupported(
          fmt::format("the NVIDIA driver does not start: {}", words(driver, result)),
          "see what nvidia-smi says; after a driver update the machine must be restarted");
  }
}

}  // namespace

Result<Driver> bind_driver(const SharedLibrary& library) {
  Driver driver;
  const char* missing = nullptr;
#define MOETUNE_BIND(name, exported, ...)                                          \
  driver.name = reinterpret_cast<decltype(driver.name)>(library.symbol(exported)); \
  if (driver.name == nullptr && missing == nullptr) missing = exported;
  MOETUNE_CUDA_DRIVER_FUNCTIONS(MOETUNE_BIND)
#undef MOETUNE_BIND

  if (driver.cuDriverGetVersion) driver.cuDriverGetVersion(&driver.version);
  if (driver.version > 0 && driver.version < kOldestDriverVersion) {
    return too_old(
        fmt::format("it serves CUDA {}.{}", driver.version / 1000, driver.version % 1000 / 10));
  }
  if (missing) return too_old(fmt::format("{} does not export {}", library.path(), missing));
  return driver;
}

Status start_driver(const Driver& driver) {
  if (const CUresult result = driver.cuInit(0); result != kCudaSuccess)
    return initialisation_error(driver, result);
  int devices = 0;
  if (const CUresult result = driver.cuDeviceGetCount(&devices); result != kCudaSuccess) {
    return initialisation_error(driver, result);
  }
  if (devices == 0) return initialisation_error(driver, kCudaNoDevice);
  return {};
}

Result<const Driver*> load_driver() {
  static const Result<Driver> loaded = []() -> Result<Driver> {
    auto library = open_library(kLibrary);
    if (!library.ok()) {
      return unsupported(
          fmt::format("there is no NVIDIA driver here ({})", library.error().message),
          "install NVIDIA driver 525 or newer; a container needs the NVIDIA Container Toolkit and "
          "--gpus all");
    }
    auto driver = bind_driver(*library);
    if (!driver.ok()) return driver;
    if (auto started = start_driver(*driver); !started.ok()) return std::move(started).error();
    return driver;
  }();
  if (!loaded.ok()) return loaded.error();
  return &loaded.value();
}

bool is_sticky(CUresult result) {
  switch (result) {
    case 214:  // uncorrectable ECC error
    case 220:  // uncorrectable NVLink error
    case kCudaIllegalAddress:
    case 702:  // launch timeout
    case 709:  // context is destroyed
    case 710:  // device-side assert
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failed
    case 721:  // tensor memory leak
      return true;
    default: return false;
  }
}

Status to_status(const Driver& driver, CUresult result, std::string_view doing) {
  if (result == kCudaSuccess) return {};
  Error error{ErrorCode::kRun, fmt::format("{} while {}", words(driver, result), doing)};
  if (result == kCudaOutOfMemory) {
    error.code = ErrorCode::kOutOfMemory;
    error.hint = "see with nvidia-smi what else uses the GPU, or give --memory a smaller limit";
  } else if (result == kCudaNoBinaryForGpu) {
    error.code = ErrorCode::kUnsupported;
    error.hint = "this code was compiled for another architecture";
  } else if (is_sticky(result)) {
    error.message +=
        "; the GPU's context is lost: nothing in this process can use the device any more";
    error.hint = "run it again in a new process; compute-sanitizer names the kernel and the access";
  }
  return error;
}

}  // namespace moetune::cuda

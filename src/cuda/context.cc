#include "cuda/context.h"

#include <fmt/format.h>

#include <array>

#include "base/status_macros.h"

namespace moetune::cuda {

Result<ContextPtr> Context::open(int ordinal) {
  MOETUNE_ASSIGN_OR_RETURN(const Driver* driver, load_driver());
  return open(*driver, ordinal);
}

Result<ContextPtr> Context::open(const Driver& driver, int ordinal) {
  int count = 0;
  MOETUNE_CUDA_CHECK(driver, cuDeviceGetCount(&count), "counting GPUs");
  if (ordinal < 0 || ordinal >= count) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("there is no GPU {}: this process sees {}", ordinal, count),
        fmt::format("use cuda:0 to cuda:{}; CUDA_VISIBLE_DEVICES hides others", count - 1)};
  }
  CUdevice device = 0;
  MOETUNE_CUDA_CHECK(driver, cuDeviceGet(&device, ordinal), "finding the GPU");
  // The constructor is private, so make_shared cannot call it.
  return ContextPtr(new Context(driver, device));
}

Context::~Context() {
  if (is_made()) driver_.cuDevicePrimaryCtxRelease(device_);
}

Status Context::make() const {
  const std::scoped_lock lock(mutex_);
  if (is_made()) return {};  // By another thread, meanwhile.
  CUcontext handle = nullptr;
  MOETUNE_CUDA_CHECK(driver_, cuDevicePrimaryCtxRetain(&handle, device_),
                     "making a context on the GPU");
  handle_.store(handle, std::memory_order_release);
  return {};
}

Status Context::make_current() const {
  if (!is_made()) MOETUNE_RETURN_IF_ERROR(make());
  return to_status(driver_, driver_.cuCtxSetCurrent(handle_.load(std::memory_order_acquire)),
                   "selecting the GPU");
}

Result<ContextScope> ContextScope::enter(const Context& context) {
  const Driver& driver = context.driver();
  ContextScope scope;
  MOETUNE_CUDA_CHECK(driver, cuCtxGetCurrent(&scope.before_), "asking which GPU is selected");
  if (scope.before_ != nullptr && scope.before_ == context.handle()) return scope;
  MOETUNE_RETURN_IF_ERROR(context.make_current());
  scope.driver_ = &driver;
  return scope;
}

ContextScope ContextScope::keep(const Driver& driver) {
  ContextScope scope;
  if (driver.cuCtxGetCurrent(&scope.before_) == kCudaSuccess) scope.driver_ = &driver;
  return scope;
}

int Context::attribute(int id) const { return device_attribute(driver_, device_, id); }

std::string Context::name() const { return device_name(driver_, device_); }

Architecture Context::architecture() const {
  return {attribute(kDeviceComputeMajor), attribute(kDeviceComputeMinor)};
}

ArchitectureLimits Context::limits() const {
  ArchitectureLimits limits;
  limits.sm = architecture().sm();
  limits.shared_per_block = attribute(kDeviceSharedPerBlockOptin);
  limits.shared_per_multiprocessor = attribute(kDeviceSharedPerMultiprocessor);
  limits.shared_reserved = attribute(kDeviceReservedSharedPerBlock);
  limits.registers_per_multiprocessor = attribute(kDeviceRegistersPerMultiprocessor);
  limits.warps_per_multiprocessor = attribute(kDeviceThreadsPerMultiprocessor) / 32;
  limits.blocks_per_multiprocessor = attribute(kDeviceBlocksPerMultiprocessor);
  return limits;
}

int device_attribute(const Driver& driver, CUdevice device, int id) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, id, device) == kCudaSuccess ? value : 0;
}

std::string device_name(const Driver& driver, CUdevice device) {
  std::array<char, 256> text = {};
  driver.cuDeviceGetName(text.data(), static_cast<int>(text.size()) - 1, device);
  return text.data();
}

size_t device_memory_bytes(const Driver& driver, CUdevice device) {
  size_t bytes = 0;
  return driver.cuDeviceTotalMem(&bytes, device) == kCudaSuccess ? bytes : 0;
}

Result<Stream> make_stream(const ContextPtr& context) {
  MOETUNE_RETURN_IF_ERROR(context->make_current());
  CUstream stream = nullptr;
  MOETUNE_CUDA_CHECK(context->driver(), cuStreamCreate(&stream, kStreamNonBlocking),
                     "making a stream");
  return Stream(context, stream);
}

Result<Event> make_event(const ContextPtr& context) {
  MOETUNE_RETURN_IF_ERROR(context->make_current());
  CUevent event = nullptr;
  MOETUNE_CUDA_CHECK(context->driver(), cuEventCreate(&event, 0), "making an event");
  return Event(context, event);
}

Result<Memory> allocate_memory(const ContextPtr& context, size_t bytes) {
  if (bytes == 0) return Memory();
  MOETUNE_RETURN_IF_ERROR(context->make_current());
  const Driver& driver = context->driver();
  CUdeviceptr address = 0;
  const CUresult result = driver.cuMemAlloc(&address, bytes);
  if (result == kCudaSuccess) return Memory(context, address);
  size_t free = 0;
  size_t total = 0;
  if (result == kCudaOutOfMemory) driver.cuMemGetInfo(&free, &total);
  return to_status(
             driver, result,
             fmt::format("allocating {} bytes on the GPU ({} of {} free)", bytes, free, total))
      .error();
}

}  // namespace moetune::cuda

// Owners of what the driver hands out. Each releases in its destructor, can be moved, and is used
// by one thread at a time; a context must be current on the thread (Context::make_current) for
// everything else.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cuda/driver.h"
#include "cuda/planner.h"
#include "moetune/result.h"

namespace moetune::cuda {

/// The primary context of a device: the one that the CUDA runtime, PyTorch and others use too.
/// Shared by everything that was made in it, and released with the last of them.
///
/// It is made when make_current() is first called: a process whose helper runs the candidates asks
/// for properties only, and leaves no trace on the device.
class Context {
 public:
  /// kInvalidArgument for an ordinal that is not there; kRun in the driver's words.
  static Result<std::shared_ptr<const Context>> open(int ordinal);
  /// With a driver of the caller's, which must outlive the context.
  static Result<std::shared_ptr<const Context>> open(const Driver& driver, int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  CUdevice device() const { return device_; }
  Architecture architecture() const;
  /// An attribute of the device (kDevice...); 0 where the driver does not know it.
  int attribute(int id) const;
  std::string name() const;
  /// What the device itself reports, where known_limits() may not know the architecture yet.
  ArchitectureLimits limits() const;
  /// Makes this the calling thread's context. The first call makes the context itself, which takes
  /// a fraction of a second and some hundred MiB of the device. kRun, kOutOfMemory in the driver's
  /// words. Thread-safe.
  Status make_current() const;
  /// Whether that has happened. Thread-safe.
  bool is_made() const { return handle_.load(std::memory_order_acquire) != nullptr; }
  /// The driver's name for it; null before it is made. Thread-safe.
  CUcontext handle() const { return handle_.load(std::memory_order_acquire); }

 private:
  Context(const Driver& driver, CUdevice device) : driver_(driver), device_(device) {}
  Status make() const;

  const Driver& driver_;
  CUdevice device_;
  mutable std::mutex mutex_;
  mutable std::atomic<CUcontext> handle_ = nullptr;
};
using ContextPtr = std::shared_ptr<const Context>;

/// Makes a context the calling thread's, and puts back in its destructor what was there: for calls
/// from a program's own threads, which may have chosen another GPU, or none.
class ContextScope {
 public:
  /// kRun, kOutOfMemory as Context::make_current().
  static Result<ContextScope> enter(const Context& context);
  /// Selects nothing itself: for code that does.
  static ContextScope keep(const Driver& driver);
  ContextScope(ContextScope&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), before_(other.before_) {}
  ContextScope& operator=(ContextScope&&) = delete;
  ~ContextScope() {
    if (driver_ != nullptr) driver_->cuCtxSetCurrent(before_);
  }

 private:
  ContextScope() = default;

  const Driver* driver_ = nullptr;  ///< Null where there is nothing to put back.
  CUcontext before_ = nullptr;
};

/// A device's attribute (kDevice...), 0 where the driver does not know it; its name; its memory, 0
/// where the driver does not say. None of them needs a context.
int device_attribute(const Driver& driver, CUdevice device, int id);
std::string device_name(const Driver& driver, CUdevice device);
size_t device_memory_bytes(const Driver& driver, CUdevice device);

/// Owns a handle of the driver and the context it lives in.
template <typename Handle, CUresult (*Driver::*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(ContextPtr context, Handle handle) : context_(std::move(context)), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, {})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    // A failure here was reported by the call that caused it: errors of a dead context are the same
    // for every handle.
    if (handle_ && context_->make_current().ok()) (context_->driver().*destroy)(handle_);
  }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }
  const ContextPtr& context() const { return context_; }

 private:
  ContextPtr context_;
  Handle handle_{};
};

using Stream = Owned<CUstream, &Driver::cuStreamDestroy>;
using Event = Owned<CUevent, &Driver::cuEventDestroy>;
using Memory = Owned<CUdeviceptr, &Driver::cuMemFree>;
using Graph = Owned<CUgraph, &Driver::cuGraphDestroy>;
using GraphExec = Owned<CUgraphExec, &Driver::cuGraphExecDestroy>;

/// Does not wait for the legacy default stream, nor that for it.
Result<Stream> make_stream(const ContextPtr& context);
Result<Event> make_event(const ContextPtr& context);
/// At least 256-byte aligned; 0 bytes give a null Memory. kOutOfMemory states what was asked for
/// and what is free.
Result<Memory> allocate_memory(const ContextPtr& context, size_t bytes);

}  // namespace moetune::cuda

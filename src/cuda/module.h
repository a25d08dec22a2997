// Loaded machine code and how to launch it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cuda/context.h"
#include "cuda/jit.h"
#include "moetune/result.h"

namespace moetune::cuda {

struct LaunchShape {
  unsigned grid_x = 1;
  unsigned grid_y = 1;
  unsigned grid_z = 1;
  unsigned threads = 1;
  unsigned shared_bytes = 0;  ///< Dynamic; at most what Module::kernel() was told.
  unsigned cluster_x = 1;     ///< Blocks per cluster (sm_90 on); 1: none.
  bool cooperative = false;   ///< All blocks are resident at once, or the launch fails.
  bool programmatic =
      false;  ///< May start before its predecessor in the stream ends (griddepcontrol, sm_90 on).
};

/// A kernel of a loaded module, which it keeps loaded. Cheap to copy, immutable; any thread may
/// launch it.
class Kernel {
 public:
  Kernel() = default;

  /// Queues one launch. `arguments`: addresses of the kernel's parameters in their order. Neither
  /// allocates nor waits.
  Status launch(const LaunchShape& shape, CUstream stream, void** arguments) const;

  /// launch() with the parameters themselves, whose types must be exactly those the kernel
  /// declares.
  template <typename... Parameters>
  Status operator()(const LaunchShape& shape, CUstream stream, Parameters... parameters) const {
    void* addresses[] = {static_cast<void*>(&parameters)..., nullptr};
    return launch(shape, stream, addresses);
  }

  const std::string& name() const;
  /// As the compiler reported them.
  const KernelResources& resources() const;
  /// Blocks of `threads` threads that one multiprocessor holds, as the driver works it out. 0 where
  /// none fits.
  int blocks_per_multiprocessor(int threads, size_t shared_bytes) const;

 private:
  friend class Module;
  struct State;
  std::shared_ptr<const State> state_;
};

/// Machine code on a device. Cheap to copy; thread-safe.
class Module {
 public:
  /// kRun in the driver's words: kUnsupported where the code is for another architecture or a newer
  /// driver.
  static Result<Module> load(const ContextPtr& context, CompiledProgramPtr program);

  /// The kernel at that place of the program's request, allowed to ask for `shared_bytes` of
  /// dynamic shared memory. kRun with both numbers where the device does not have them.
  Result<Kernel> kernel(size_t index, int shared_bytes = 0) const;

 private:
  friend class Kernel;
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace moetune::cuda

// A CUDA GPU as the tuner sees it, and what is known of the GPUs of this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/context.h"
#include "cuda/nvml.h"
#include "moetune/measuring.h"
#include "moetune/plan.h"
#include "moetune/result.h"

namespace moetune::cuda {

/// moetune::Device on one GPU. Calls get a stream of its own; run() waits for them, record() makes
/// a graph of them. sample_us() replays that graph; every replay is timed by a pair of events, all
/// queued while the stream waits for the host, so that neither launching nor gaps between replays
/// are in the time. Between two calls of a sequence there is no programmatic edge: what a kernel
/// does ahead of its predecessor's end would otherwise hide in another call's time.
///
/// The first of them makes the context. Properties, state and free memory (by NVML) need none.
class CudaDevice : public Device {
 public:
  virtual const ContextPtr& context() const = 0;
  /// Processes with a context on the GPU, this one included; more than 1: others use it. 0: not
  /// known.
  virtual int processes() = 0;
};

/// kInvalidArgument for an ordinal that is not there, kUnsupported as load_driver().
Result<std::unique_ptr<CudaDevice>> make_cuda_device(int ordinal);
/// With a driver and an NVML of the caller's, which must outlive the device; null: there is no
/// NVML.
Result<std::unique_ptr<CudaDevice>> make_cuda_device(const Driver& driver, int ordinal,
                                                     const Nvml* nvml = nullptr);

/// The properties plans are matched by, of every GPU of this machine. Empty where there is no
/// usable driver. Never fails.
std::vector<DeviceProperties> list_cuda_devices();

struct MissingPart {
  std::string part;       ///< "NVIDIA driver", "NVRTC", ...
  std::string turns_off;  ///< What does not work without it.
  std::string how_to_get;
};

/// What this machine lacks of what moetune can use. Never fails.
std::vector<MissingPart> missing_parts();

}  // namespace moetune::cuda

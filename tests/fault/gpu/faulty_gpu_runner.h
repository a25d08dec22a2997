// The faulty operator (y = 2 x) as kernels on a GPU, each of which misbehaves in its own way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "moetune/runner.h"

namespace moetune::testing {

/// One way to misbehave on a GPU.
struct GpuFault {
  const char* name;
  bool right = false;           ///< Whether it may win.
  bool costs_a_helper = false;  ///< The device, as the helper sees it, is of no use after it.
};

/// What the runner's one parameter, "kind", can be; the default first. The fastest right one is
/// "fast".
const std::vector<GpuFault>& gpu_faults();

/// Has the name and candidates of make_faulty_runner() (fault/operator/faulty_operator.h), so that
/// faulty(kind) names its candidates too. Without a device it cannot compile, only describe itself.
std::unique_ptr<TunableRunner> make_faulty_gpu_runner(cuda::CudaDevice* device);

}  // namespace moetune::testing

// Devices behind one door: what `--device` names, with the runners and ceilings it has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moetune/autotuner.h"
#include "moetune/measuring.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/runner.h"
#include "tuner/ceilings.h"

namespace moetune {

/// One device. Not thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  /// The runners of a problem, the default's first. kUnsupported with the reason where there is
  /// none.
  virtual Result<std::vector<std::unique_ptr<TunableRunner>>> make_runners(
      const FusedMoeSpec& spec) = 0;
  /// Takes about half a second. `read_bytes` is the size of interest; it is cut to what memory
  /// allows. Operations are those that layers of such weights are computed with.
  virtual Result<Ceilings> measure_ceilings(size_t read_bytes, WeightFormat weights) = 0;
  /// Beyond which a measurement is a mistake.
  virtual DevicePeak peak() const = 0;
  /// Numbers of the processors that the device's threads run on. Empty: it has none of its own.
  virtual std::vector<int> processors() const { return {}; }
  /// As long as what it gives lives, work on the device may select it in the calling thread, as
  /// GPUs have to be; at the end of that the thread has what it had.
  virtual std::shared_ptr<void> keep_selected() { return nullptr; }
};

struct BackendOptions {
  int threads = 0;  ///< Of a CPU; 0: all this process may use.
  /// Keeps the calling thread on the processor that the thread team has for it, as long as the
  /// backend lives: for measuring. A serving program's threads are its own affair.
  bool pin_caller = false;
};

/// "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:0". kInvalidArgument for another
/// text, kUnsupported for a device that is not there.
Result<std::unique_ptr<Backend>> open_backend(const std::string& device,
                                              const BackendOptions& options = {});

}  // namespace moetune

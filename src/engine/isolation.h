// Whether candidates run in this process or in a helper process, and how such a helper opens the
// same device and the same problem.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/backend.h"
#include "engine/real_weights.h"
#include "moetune/autotuner.h"
#include "moetune/measuring.h"
#include "moetune/result.h"
#include "worker/registry.h"
#include "worker/worker_host.h"

namespace moetune {

/// A helper for the candidates of one device. Empty: candidates run in this process.
struct Isolation {
  std::shared_ptr<WorkerHost> host;
  worker::PlaceOptions device;  ///< What the helper is told of it.

  explicit operator bool() const { return host != nullptr; }
};

/// How the device of a backend was asked for.
struct DeviceRequest {
  std::string name;           ///< As open_backend() took it.
  uint64_t memory_bytes = 0;  ///< limit_memory(), or 0: no limit, ...
  uint64_t weight_bytes = 0;  ///< ... and what it counts as taken by weights.
};

/// Whether what a look-up answers may run outside of a helper: the default, and what was checked
/// and confirmed against it on a device like this one, with this version of its runner (a look-up
/// gives no decision of another). A sibling device's decision, and one without resolved evidence,
/// may not.
bool is_proven(const Lookup& lookup);

/// What a helper is told to open for a device that was asked for as `request`: one that was found
/// by itself ("auto") is named, so that the helper opens that one.
std::string device_name(Backend& backend, const std::string& request);

/// Starts a helper for a device that is open here. kNotFound where there is no helper program,
/// kUnsupported for one of another version.
Result<Isolation> start_isolation(Backend& backend, const DeviceRequest& request,
                                  WorkerOptions options = {});

/// An executor for that bench's problem: in the helper, or in this process with `runners`.
/// Everything referenced must outlive it. `is_exact`, `seed` and `weights` are those of the bench:
/// a helper opens the same checkpoint by itself.
Result<std::unique_ptr<Executor>> make_executor(const Isolation& isolation, Backend& backend,
                                                Workbench& bench,
                                                std::vector<TunableRunner*> runners, bool is_exact,
                                                uint64_t seed,
                                                const std::optional<RealWeights>& weights = {});

/// What the device can do at best, measured where candidates run: with a helper this process does
/// not touch the device. kUnsupported for a helper that measures no ceilings.
Result<Ceilings> measure_ceilings(const Isolation& isolation, Backend& backend,
                                  const Problem& problem, size_t read_bytes, WeightFormat weights);

/// What moetune-worker serves: fused_moe, on every device that open_backend() opens.
worker::Registry make_worker_registry();

}  // namespace moetune

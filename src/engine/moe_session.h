// Everything that measuring one layer on one device takes, put together: runners, workbenches,
// executors.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/isolation.h"
#include "engine/kernel_host.h"
#include "engine/real_weights.h"
#include "moetune/autotuner.h"
#include "moetune/measuring.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "ops/moe/moe_workbench.h"

namespace moetune {

/// One layer on a backend, which must outlive it. Not thread-safe.
class MoeSession {
 public:
  /// kUnsupported where the backend has no runner for the specification. With `isolation` the
  /// executors run candidates in its helper, and its errors are added. With `weights` the layer's
  /// own take the place of random ones, and open_weights()' errors are added. With `hosts`, which
  /// must outlive the session, their kernels take part, in that order; moetune's own do where they
  /// are among them, and the specification must be a hosted_spec().
  static Result<std::unique_ptr<MoeSession>> create(Backend& backend, const FusedMoeSpec& spec,
                                                    uint64_t seed, const Isolation& isolation = {},
                                                    const std::optional<RealWeights>& weights = {},
                                                    std::span<const KernelHost> hosts = {});

  const FusedMoeSpec& spec() const { return spec_; }
  Backend& backend() { return backend_; }
  const Problem& problem() const { return bench_->problem(); }
  std::span<TunableRunner* const> runners() const { return runner_pointers_; }
  TunableRunner& default_runner() const { return *runner_pointers_.front(); }

  /// Realistic data (or the layer's own weights): what is timed, and checked closely.
  Workbench& bench() { return *bench_; }
  Executor& executor() { return *executor_; }
  /// Integer data through a few experts of the same sizes: checked bit by bit.
  Workbench& exact_bench() { return *exact_bench_; }
  /// Null where only kernels of others take part, which have no exact check.
  Executor* exact_executor() { return exact_executor_.get(); }

  /// A request with all parts in place; the caller sets budget, workload, progress and stop.
  TuneRequest request(Buckets buckets);

 private:
  explicit MoeSession(Backend& backend, const FusedMoeSpec& spec)
      : backend_(backend), spec_(spec) {}

  Status make_benches(uint64_t seed, const std::optional<RealWeights>& weights, bool is_hosted);
  // Moetune's own kernels, and what runs them.
  Status add_own(uint64_t seed, const Isolation& isolation,
                 const std::optional<RealWeights>& weights);
  Status add_hosted(const KernelHost& host);

  Backend& backend_;
  FusedMoeSpec spec_;
  std::vector<std::unique_ptr<TunableRunner>> runners_;
  std::vector<std::unique_ptr<TunableRunner>> exact_runners_;
  std::vector<TunableRunner*> runner_pointers_;
  std::unique_ptr<Workbench> bench_;
  std::unique_ptr<Workbench> exact_bench_;
  std::shared_ptr<WeightFiles> weight_files_;  // Of `bench_`, for hosts.
  std::vector<std::unique_ptr<Executor>> executors_;
  std::map<std::string, Executor*> by_runner_;
  std::unique_ptr<Executor> routed_;  // Where there are several.
  Executor* executor_ = nullptr;
  std::unique_ptr<Executor> exact_executor_;  // Null: no kernels of our own take part.
};

/// The specification that a layer's exact check runs: the same sizes, formats and kernels with few
/// experts, given routing and a linear activation.
FusedMoeSpec exact_probe(const FusedMoeSpec& spec);

/// How benches of a layer on that backend are made, in this process and in a helper.
MoeWorkbenchOptions bench_options(Backend& backend, uint64_t seed);

}  // namespace moetune

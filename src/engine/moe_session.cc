#include "engine/moe_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/status_macros.h"
#include "ops/moe/weights.h"
#include "tuner/routed_executor.h"

namespace moetune {

namespace {

std::vector<TunableRunner*> pointers_to(
    const std::vector<std::unique_ptr<TunableRunner>>& runners) {
  std::vector<TunableRunner*> pointers;
  for (const auto& runner : runners) pointers.push_back(runner.get());
  return pointers;
}

}  // namespace

FusedMoeSpec exact_probe(const FusedMoeSpec& spec) {
  FusedMoeSpec probe = exact_variant(spec);
  // Eight experts touch every path of a kernel's grouping, and take a fraction of the layer's
  // memory.
  probe.experts = std::min<int64_t>(spec.experts, std::max<int64_t>(8, spec.top_k));
  probe.global_experts = probe.experts;
  probe.top_k = static_cast<int>(std::min<int64_t>(spec.top_k, probe.experts));
  probe.ep = 1;
  // Given routing has no router, and groups of all experts need not fit these few.
  probe.router = RouterSpec{};
  return probe;
}

MoeWorkbenchOptions bench_options(Backend& backend, uint64_t seed) {
  constexpr unsigned kMostThreads = 16;
  MoeWorkbenchOptions options{.seed = seed,
                              .last_level_cache_bytes = backend.device().last_level_cache_bytes()};
  options.threads =
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads));
  return options;
}

Result<std::unique_ptr<MoeSession>> MoeSession::create(Backend& backend, const FusedMoeSpec& spec,
                                                       uint64_t seed, const Isolation& isolation,
                                                       const std::optional<RealWeights>& weights,
                                                       std::span<const KernelHost> hosts) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  std::unique_ptr<MoeSession> session(new MoeSession(backend, spec));
  MOETUNE_RETURN_IF_ERROR(session->make_benches(seed, weights, !hosts.empty()));
  if (hosts.empty()) MOETUNE_RETURN_IF_ERROR(session->add_own(seed, isolation, weights));
  for (const KernelHost& host : hosts) {
    MOETUNE_RETURN_IF_ERROR(host.choice.is_own() ? session->add_own(seed, isolation, weights)
                                                 : session->add_hosted(host));
  }
  session->executor_ = session->executors_.front().get();
  if (session->executors_.size() > 1) {
    session->routed_ = make_routed_executor(session->by_runner_);
    session->executor_ = session->routed_.get();
  }
  return session;
}

Status MoeSession::make_benches(uint64_t seed, const std::optional<RealWeights>& weights,
                                bool is_hosted) {
  MoeWorkbenchOptions options = bench_options(backend_, seed);
  options.accepts_engine_roundings = is_hosted;
  std::unique_ptr<WeightSource> own;
  if (weights) {
    MOETUNE_ASSIGN_OR_RETURN(own, open_weights(*weights, spec_));
  }
  MOETUNE_ASSIGN_OR_RETURN(bench_, make_moe_workbench(spec_, options, std::move(own)));
  options.kind = DataKind::kExact;
  MOETUNE_ASSIGN_OR_RETURN(exact_bench_, make_moe_workbench(exact_probe(spec_), options));
  weight_files_ = std::make_shared<WeightFiles>(*bench_);
  return {};
}

Status MoeSession::add_own(uint64_t seed, const Isolation& isolation,
                           const std::optional<RealWeights>& weights) {
  MOETUNE_ASSIGN_OR_RETURN(runners_, backend_.make_runners(spec_));
  MOETUNE_ASSIGN_OR_RETURN(exact_runners_, backend_.make_runners(exact_probe(spec_)));
  const std::vector<TunableRunner*> own = pointers_to(runners_);
  runner_pointers_.insert(runner_pointers_.end(), own.begin(), own.end());
  MOETUNE_ASSIGN_OR_RETURN(auto executor, make_executor(isolation, backend_, *bench_, own,
                                                        /*is_exact=*/false, seed, weights));
  for (const TunableRunner* runner : own) by_runner_[runner->name()] = executor.get();
  executors_.push_back(std::move(executor));
  MOETUNE_ASSIGN_OR_RETURN(exact_executor_, make_executor(isolation, backend_, *exact_bench_,
                                                          pointers_to(exact_runners_),
                                                          /*is_exact=*/true, seed));
  return {};
}

Status MoeSession::add_hosted(const KernelHost& host) {
  MOETUNE_ASSIGN_OR_RETURN(auto executor,
                           make_worker_executor(host.process, {.problem = problem(),
                                                               .options = host.options,
                                                               .device_key = {},
                                                               .bench = bench_.get(),
                                                               .sends_arguments = true,
                                                               .weights = weight_files_}));
  for (const auto& runner : host.kernels.runners) {
    if (!by_runner_.emplace(runner->name(), executor.get()).second) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the host {} has a runner {}, which is there already",
                               host.choice.name, runner->name())};
    }
    runner_pointers_.push_back(runner.get());
  }
  executors_.push_back(std::move(executor));
  return {};
}

TuneRequest MoeSession::request(Buckets buckets) {
  TuneRequest request{
      .problem = problem(), .runners = runner_pointers_, .buckets = std::move(buckets)};
  request.veto_workloads = {"zipf:1.2"};
  request.device = backend_.device().properties();
  request.peak = backend_.peak();
  request.bench = bench_.get();
  request.executor = executor_;
  request.exact_bench = exact_bench_.get();
  request.exact_executor = exact_executor_.get();
  return request;
}

}  // namespace moetune

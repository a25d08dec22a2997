#include "engine/moe_session.h"

#include <algorithm>
#include <thread>

#include "base/status_macros.h"
#include "ops/moe/weights.h"

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
                                                       const std::optional<RealWeights>& weights) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  std::unique_ptr<MoeSession> session(new MoeSession(backend, spec));
  const FusedMoeSpec probe = exact_probe(spec);
  MOETUNE_ASSIGN_OR_RETURN(session->runners_, backend.make_runners(spec));
  MOETUNE_ASSIGN_OR_RETURN(session->exact_runners_, backend.make_runners(probe));
  session->runner_pointers_ = pointers_to(session->runners_);

  MoeWorkbenchOptions options = bench_options(backend, seed);
  std::unique_ptr<WeightSource> own;
  if (weights) {
    MOETUNE_ASSIGN_OR_RETURN(own, open_weights(*weights, spec));
  }
  MOETUNE_ASSIGN_OR_RETURN(session->bench_, make_moe_workbench(spec, options, std::move(own)));
  options.kind = DataKind::kExact;
  MOETUNE_ASSIGN_OR_RETURN(session->exact_bench_, make_moe_workbench(probe, options));
  MOETUNE_ASSIGN_OR_RETURN(session->executor_, make_executor(isolation, backend, *session->bench_,
                                                             session->runner_pointers_,
                                                             /*is_exact=*/false, seed, weights));
  MOETUNE_ASSIGN_OR_RETURN(
      session->exact_executor_,
      make_executor(isolation, backend, *session->exact_bench_,
                    pointers_to(session->exact_runners_), /*is_exact=*/true, seed));
  return session;
}

TuneRequest MoeSession::request(Buckets buckets) {
  TuneRequest request{
      .problem = problem(), .runners = runner_pointers_, .buckets = std::move(buckets)};
  request.veto_workloads = {"zipf:1.2"};
  request.device = backend_.device().properties();
  request.peak = backend_.peak();
  request.bench = bench_.get();
  request.executor = executor_.get();
  request.exact_bench = exact_bench_.get();
  request.exact_executor = exact_executor_.get();
  return request;
}

}  // namespace moetune

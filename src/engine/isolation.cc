#include "engine/isolation.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {

bool is_proven(const Lookup& lookup) {
  if (lookup.decision == nullptr) return true;
  const Evidence& evidence = lookup.decision->evidence;
  return lookup.provenance == Provenance::kTuned && evidence.resolved &&
         evidence.chosen.samples > 0;
}

std::string device_name(Backend& backend, const std::string& request) {
  if (request != "auto") return request;
  return backend.device().properties().kind == "cpu" ? "cpu" : "cuda:0";
}

Result<Isolation> start_isolation(Backend& backend, const DeviceRequest& request,
                                  WorkerOptions options) {
  Isolation isolation;
  isolation.device["device"] = device_name(backend, request.name);
  std::vector<int> processors = backend.processors();
  std::erase_if(processors, [](int number) { return number < 0; });
  if (!processors.empty()) {
    isolation.device["threads"] = fmt::format("{}", backend.processors().size());
    isolation.device["processors"] = fmt::format("{}", fmt::join(processors, ","));
  }
  if (request.memory_bytes > 0) {
    isolation.device["memory_bytes"] = fmt::format("{}", request.memory_bytes);
    isolation.device["weight_bytes"] = fmt::format("{}", request.weight_bytes);
  }
  auto host = WorkerHost::start(std::move(options));
  if (!host.ok()) return std::move(host).error();
  isolation.host = std::move(host).value();
  return isolation;
}

Result<std::unique_ptr<Executor>> make_executor(const Isolation& isolation, Backend& backend,
                                                Workbench& bench,
                                                std::vector<TunableRunner*> runners, bool is_exact,
                                                uint64_t seed,
                                                const std::optional<RealWeights>& weights) {
  if (!isolation) return make_in_process_executor(backend.device(), bench, std::move(runners));
  WorkerPlace place{.problem = bench.problem(),
                    .options = isolation.device,
                    .device_key = backend.device().properties().key(),
                    .bench = &bench};
  place.options["data"] = is_exact ? "exact" : "realistic";
  place.options["seed"] = fmt::format("{}", seed);
  if (weights) {
    place.options["model"] = weights->model;
    place.options["layer"] = fmt::format("{}", weights->layer);
    place.options["rank"] = fmt::format("{}", weights->rank);
  }
  return make_worker_executor(isolation.host, std::move(place));
}

Result<Ceilings> measure_ceilings(const Isolation& isolation, Backend& backend,
                                  const Problem& problem, size_t read_bytes, WeightFormat weights) {
  if (!isolation) return backend.measure_ceilings(read_bytes, weights);
  return measure_worker_ceilings(isolation.host,
                                 {.problem = problem,
                                  .options = isolation.device,
                                  .device_key = backend.device().properties().key()},
                                 read_bytes);
}

}  // namespace moetune

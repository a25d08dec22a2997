#include "cli/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "cli/describe.h"
#include "cli/host_flags.h"
#include "cli/values.h"
#include "engine/limited_backend.h"

namespace moetune::cli {
namespace {

Status check_memory(const FusedMoeSpec& spec, const DeviceFlags::Values& flags, Device& device) {
  const uint64_t needed = weight_bytes(spec);
  const size_t free = device.free_memory_bytes();
  const bool limited = flags.memory_bytes.has_value() && (free == 0 || *flags.memory_bytes < free);
  const uint64_t available = limited ? *flags.memory_bytes : free;
  if (available == 0 || needed < available) return {};  // 0: the device does not say.
  return Error{ErrorCode::kOutOfMemory,
               fmt::format("the layer's weights take {} in {}; {} {}",
                           bytes_text(static_cast<double>(needed)), to_string(spec.weights),
                           limited ? "--memory allows" : "free on the device:",
                           bytes_text(static_cast<double>(available))),
               "take a smaller share with --ep or --tp, or a smaller format with --weights nvfp4"};
}

/// A model whose own format has no kernels here can still be tuned in another one.
Error with_other_formats(const LayerFlags::Layer& layer, Error error) {
  const bool own_format =
      layer.spec.weights != WeightFormat::kBf16 && layer.model.weights == layer.spec.weights;
  if (error.code == ErrorCode::kUnsupported && own_format) {
    error.hint +=
        fmt::format("{}--weights bf16 or --weights nvfp4 takes the same layer in another format",
                    error.hint.empty() ? "" : "; ");
  }
  return error;
}

Result<Isolation> isolate(Backend& backend, const FusedMoeSpec& spec,
                          const DeviceFlags::Values& flags, Where where, const WorkerPolicy& policy,
                          Output& output) {
  if (where == Where::kHere) return Isolation{};
  Result<Isolation> started =
      start_isolation(backend,
                      {.name = flags.device,
                       .memory_bytes = flags.memory_bytes.value_or(0),
                       .weight_bytes = flags.memory_bytes ? weight_bytes(spec) : 0},
                      {.command = {}, .policy = policy});
  if (started.ok() || where == Where::kHelper) return started;
  output.note(
      fmt::format("warning: {}; candidates run in this process, and one that crashes takes it down",
                  started.error().message));
  return Isolation{};
}

Status start_hosts(Job& job, const FusedMoeSpec& spec, const std::string& device,
                   const HostedPart& hosted, const WorkerPolicy& policy) {
  job.host_choices = hosted.hosts;
  for (const HostChoice& choice : hosted.hosts) {
    MOETUNE_ASSIGN_OR_RETURN(KernelHost host, start_kernel_host(choice, *job.backend, device, spec,
                                                                hosted.suggested, policy));
    job.hosts.push_back(std::move(host));
  }
  return {};
}

}  // namespace

void stop_helpers_on(Job& job, const std::stop_token& stop) {
  if (job.isolation) job.isolation.host->stop_on(stop);
  for (KernelHost& host : job.hosts) {
    if (host.process) host.process->stop_on(stop);
  }
}

std::string trouble_of(const Job& job) {
  if (job.isolation && !job.isolation.host->trouble().empty()) return job.isolation.host->trouble();
  for (const KernelHost& host : job.hosts) {
    if (host.process && !host.process->trouble().empty())
      return fmt::format("the host {}: {}", host.choice.name, host.process->trouble());
  }
  return {};
}

uint64_t weight_bytes(const FusedMoeSpec& spec) {
  return static_cast<uint64_t>(expert_weight_bytes(spec)) *
         static_cast<uint64_t>(spec.held_experts());
}

size_t ceiling_bytes(const FusedMoeSpec& spec) {
  constexpr uint64_t kLeast = uint64_t{64} << 20;
  constexpr uint64_t kMost = uint64_t{1} << 30;
  return std::clamp(weight_bytes(spec), kLeast, kMost);
}

Result<Where> parse_isolation(const std::string& text) {
  if (text.empty()) return Where::kHelperOrHere;
  if (text == "worker") return Where::kHelper;
  if (text == "in-process") return Where::kHere;
  return Error{ErrorCode::kInvalidArgument, fmt::format("--isolation \"{}\"", text.substr(0, 40)),
               "there are worker and in-process"};
}

Status place_candidates(Job& job, const DeviceFlags::Values& device, uint64_t seed, Where where,
                        bool proven, Output& output) {
  if (where == Where::kHelperOrHere && proven) return {};
  const FusedMoeSpec spec = job.session->spec();
  MOETUNE_ASSIGN_OR_RETURN(job.isolation, isolate(*job.backend, spec, device, where, {}, output));
  if (!job.isolation) return {};
  MOETUNE_ASSIGN_OR_RETURN(job.session, MoeSession::create(*job.backend, spec, seed, job.isolation,
                                                           job.weights, job.hosts));
  return {};
}

bool all_proven(Job& job, const std::vector<int64_t>& tokens) {
  const PlanHandle plan = job.tuner->handle(job.session->problem());
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](int64_t count) { return is_proven(plan.find(count)); });
}

Json describe_problem(const Job& job) {
  Json problem = describe(job.session->problem());
  problem["model"] = job.model.name;
  if (job.weights) problem["layer"] = job.weights->layer;
  return problem;
}

Result<Ceilings> measure_ceilings(Job& job, Output& output) {
  const FusedMoeSpec& spec = job.session->spec();
  const size_t bytes = ceiling_bytes(spec);
  Result<Ceilings> measured = moetune::measure_ceilings(
      job.isolation, *job.backend, job.session->problem(), bytes, spec.weights);
  const bool asked_in_vain =
      job.isolation && !measured.ok() && measured.error().code == ErrorCode::kUnsupported;
  if (!asked_in_vain) return measured;
  output.note(
      fmt::format("{}: ceilings are measured by this process instead", measured.error().message));
  return job.backend->measure_ceilings(bytes, spec.weights);
}

const char* isolation_name(const Job& job) { return job.isolation ? "worker" : "in-process"; }

Result<Job> open_job(const LayerFlags::Layer& layer, const DeviceFlags::Values& device,
                     uint64_t seed, Purpose purpose, Output& output, Where where,
                     const AutoTunerOptions& tuner, const WorkerPolicy& policy,
                     const HostedPart& hosted) {
  for (const std::string& note : layer.model.notes)
    output.note(fmt::format("{}: {}", layer.model.name, note));
  Job job;
  job.model = layer.model;
  job.weights = layer.weights;
  if (job.weights)
    output.note(
        fmt::format("with the weights of layer {} of {}", job.weights->layer, layer.model.name));
  MOETUNE_ASSIGN_OR_RETURN(
      job.backend, open_backend(device.device, {.threads = device.threads, .pin_caller = true}));
  if (purpose == Purpose::kMeasure) {
    MOETUNE_RETURN_IF_ERROR(check_memory(layer.spec, device, job.backend->device()));
  }
  if (device.memory_bytes)
    job.backend =
        limit_memory(std::move(job.backend), *device.memory_bytes, weight_bytes(layer.spec));
  MOETUNE_ASSIGN_OR_RETURN(job.isolation,
                           isolate(*job.backend, layer.spec, device, where, policy, output));
  MOETUNE_RETURN_IF_ERROR(start_hosts(job, layer.spec, device.device, hosted, policy));
  const FusedMoeSpec spec = job.hosts.empty() ? layer.spec : hosted_spec(layer.spec);
  Result<std::unique_ptr<MoeSession>> session =
      MoeSession::create(*job.backend, spec, seed, job.isolation, layer.weights, job.hosts);
  if (!session.ok()) return with_other_formats(layer, std::move(session).error());
  job.session = std::move(session).value();
  job.tuner = std::make_unique<AutoTuner>(job.backend->device().properties(), tuner);
  return job;
}

Result<std::string> load_configuration(Job& job, const std::string& path, Output& output) {
  const bool asked = !path.empty();
  const std::string from = asked ? path : usual_config_path(job.device(), job.host_choices);
  if (from.empty()) return from;
  Result<TunedConfiguration> configuration = TunedConfiguration::load(from);
  if (!configuration.ok()) {
    if (!asked && configuration.error().code == ErrorCode::kNotFound) return std::string();
    return std::move(configuration).error();
  }
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<std::string> differences,
                           job.tuner->load(*configuration, AutoTuner::Source::kUser));
  for (const std::string& difference : differences)
    output.note(fmt::format("{}: {}", from, difference));
  for (const std::string& dropped :
       job.tuner->validate(job.session->problem(), job.session->runners())) {
    output.note(fmt::format("{}: {}", from, dropped));
  }
  return from;
}

}  // namespace moetune::cli

// moetune devices: what there is to run on, what it can do, and what is missing.
#include <fmt/format.h>

#include <vector>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/progress.h"
#include "cli/values.h"
#include "cpu/isa.h"
#include "cpu/topology.h"
#include "cuda/device.h"
#include "engine/backend.h"
#include "worker/worker_host.h"

namespace moetune::cli {
namespace {

// Large enough for any cache not to hold it, small enough to be quick.
constexpr size_t kReadBytes = size_t{512} << 20;

/// `topology` was read before `backend` was opened, which pins this thread.
Json describe_cpu(const cpu::Topology& topology, Backend& backend) {
  Json sets = Json::array();
  for (const cpu::Isa isa : cpu::supported_isas()) sets.push_back(cpu::to_string(isa));
  Json object = cli::describe(backend.device().properties());
  object["processors"] = topology.processors.size();
  object["cores"] = topology.cores();
  object["threads"] = topology.default_threads();
  object["quota"] = topology.quota ? Json(*topology.quota) : Json();
  object["instruction_sets"] = std::move(sets);
  object["l1_bytes"] = topology.l1_bytes;
  object["l2_bytes"] = topology.l2_bytes;
  object["l3_bytes"] = topology.l3_bytes;
  object["free_memory_bytes"] = backend.device().free_memory_bytes();
  return object;
}

std::string size_or_unknown(const Json& bytes) {
  return bytes.get<double>() > 0 ? bytes_text(bytes.get<double>()) : "unknown";
}

std::string cpu_text(const Json& cpu) {
  std::string sets;
  for (const Json& set : cpu["instruction_sets"])
    sets += (sets.empty() ? "" : ", ") + set.get<std::string>();
  return fmt::format(
      "cpu     {}\n"
      "        {} cores, {} processors; {} threads are used\n"
      "        kernels: {}\n"
      "        caches: L1 {}, L2 {} a core, L3 {} in all; free memory: {}\n",
      cpu["name"].get<std::string>(), cpu["cores"].dump(), cpu["processors"].dump(),
      cpu["threads"].dump(), sets, size_or_unknown(cpu["l1_bytes"]),
      size_or_unknown(cpu["l2_bytes"]), size_or_unknown(cpu["l3_bytes"]),
      size_or_unknown(cpu["free_memory_bytes"]));
}

std::vector<cuda::MissingPart> missing_parts() {
  std::vector<cuda::MissingPart> parts = cuda::missing_parts();
  if (find_worker_program().empty()) {
    parts.push_back(
        {"moetune-worker", "tuning on after a kernel that crashes or hangs",
         "install moetune-worker beside the program that uses moetune, or in ../libexec/moetune"});
  }
  return parts;
}

class DevicesCommand final : public Command {
 public:
  const char* name() const override { return "devices"; }
  const char* summary() const override {
    return "List devices, and what is missing to use more of them";
  }
  const char* examples() const override {
    return "  moetune devices\n"
           "  moetune devices --ceilings --json";
  }
  void declare(Flags& flags) override {
    flags.toggle("--ceilings", &ceilings_, "Measure what each device can do at best");
  }

  Result<Exit> run(Output& output) override {
    Json devices = Json::array();
    Json ceilings = Json::object();
    Json missing = Json::array();
    const cpu::Topology topology = cpu::read_topology();
    MOETUNE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> cpu,
                             open_backend("cpu", {.pin_caller = true}));
    devices.push_back(describe_cpu(topology, *cpu));
    output.text(cpu_text(devices.back()));
    MOETUNE_RETURN_IF_ERROR(add_ceilings("cpu", *cpu, ceilings, output));
    MOETUNE_RETURN_IF_ERROR(add_gpus(devices, ceilings, output));
    for (const cuda::MissingPart& part : missing_parts()) {
      missing.push_back(
          {{"part", part.part}, {"turns_off", part.turns_off}, {"how_to_get", part.how_to_get}});
      output.text(fmt::format("missing {}\n        turns off: {}\n        how to get it: {}\n",
                              part.part, part.turns_off, part.how_to_get));
    }
    output.object({{"devices", std::move(devices)},
                   {"ceilings", std::move(ceilings)},
                   {"missing", std::move(missing)}});
    return Exit::kDone;
  }

 private:
  Status add_ceilings(const std::string& device, Backend& backend, Json& ceilings, Output& output) {
    if (!ceilings_) return {};
    Progress progress;
    progress.show({"measuring the ceilings of " + device, -1, -1});
    MOETUNE_ASSIGN_OR_RETURN(const Ceilings measured,
                             backend.measure_ceilings(kReadBytes, WeightFormat::kBf16));
    ceilings[device] = cli::describe(measured);
    output.text("        ceilings: " + ceilings_text(measured) + '\n');
    return {};
  }

  Status add_gpus(Json& devices, Json& ceilings, Output& output) {
    int number = 0;
    for (const DeviceProperties& properties : cuda::list_cuda_devices()) {
      const std::string device = fmt::format("cuda:{}", number++);
      devices.push_back(cli::describe(properties));
      output.text(fmt::format("{:<7} {}\n", device, properties.name));
      if (!ceilings_) continue;
      MOETUNE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> gpu, open_backend(device));
      MOETUNE_RETURN_IF_ERROR(add_ceilings(device, *gpu, ceilings, output));
    }
    return {};
  }

  bool ceilings_ = false;
};

}  // namespace

std::unique_ptr<Command> make_devices_command() { return std::make_unique<DevicesCommand>(); }

}  // namespace moetune::cli

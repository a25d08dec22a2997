// Hosts of other kernels: programs that offer kernels of other engines, or a user's own, through
// the worker protocol (docs/hosts.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "worker/hosted_runner.h"
#include "worker/registry.h"
#include "worker/worker_host.h"

namespace moetune {

/// One of those whose kernels take part. `command` empty: moetune's own kernels.
struct HostChoice {
  std::string name;                  ///< "moetune", "vllm", or the command as it was given.
  std::vector<std::string> command;  ///< A program and its arguments.

  bool is_own() const { return command.empty(); }
};

/// In single quotes, so that a shell takes it as one word, whatever is in it.
std::string quoted_for_shell(const std::string& text);

/// "moetune,vllm,python3 mine.py": `moetune` for its own kernels, the name of a host that comes
/// with moetune's Python package, or a command line for a shell. kInvalidArgument for an empty or
/// repeated name.
Result<std::vector<HostChoice>> parse_hosts(const std::string& text);

/// A running host and what it has for one layer.
struct KernelHost {
  HostChoice choice;
  std::shared_ptr<WorkerHost> process;  ///< Null: our own kernels.
  worker::PlaceOptions options;         ///< What it is told of the device.
  HostedKernels kernels;                ///< Empty then.
};

/// Starts a host and asks what it has for this layer. `device` is named as
/// open_backend() takes it, and is the one that is open as `backend`. `suggested` as
/// describe_kernels(). Its errors, and WorkerHost::start()'s.
Result<KernelHost> start_kernel_host(const HostChoice& choice, Backend& backend,
                                     const std::string& device, const FusedMoeSpec& spec,
                                     const std::vector<Suggestion>& suggested,
                                     const WorkerPolicy& policy = {});

/// What the layer's problem is where kernels of others take part: they are given the routing.
FusedMoeSpec hosted_spec(FusedMoeSpec spec);

}  // namespace moetune

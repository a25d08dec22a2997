// --host: kernels of others, in the place of moetune's own or beside them.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "engine/kernel_host.h"
#include "moetune/autotuner.h"
#include "moetune/result.h"

namespace moetune::cli {

struct HostFlags {
  std::string hosts;

  void declare(Flags& flags);
  /// Empty where the flag is not given: moetune's own kernels, and a router that is part of the
  /// layer.
  Result<std::vector<HostChoice>> read() const;
};

/// Where plans of these hosts are kept unless a file is named: beside this machine's own, one file
/// for each set of hosts. get_config_path() without hosts; empty where that is.
std::string usual_config_path(const DeviceProperties& device, const std::vector<HostChoice>& hosts);

/// What export and audit have to know of the engine that a plan was made with, kept with the plan
/// as its member "host": the host's name, its versions, the device as the host names it, and the
/// intervals of the default. Nothing where several hosts took part.
void put_host(Plan& plan, const std::vector<KernelHost>& hosts);

}  // namespace moetune::cli

#include "cli/host_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "tuner/configuration.h"

namespace moetune::cli {
namespace {

// A host's name or command as a part of a file's name: words without their folders.
std::string file_name_part(const std::string& name) {
  std::string part;
  size_t word = 0;  // Where the current one begins.
  for (const char c : name) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == '/') {
      part.resize(word);
    } else if (is_plain) {
      part += c;
    } else if (!part.empty() && part.back() != '-') {
      part += '-';
    }
    if (c == ' ') word = part.size();
  }
  return part.substr(0, 64);
}

}  // namespace

void HostFlags::declare(Flags& flags) {
  flags.value("--host", "LIST", &hosts,
              "Kernels of others: vllm, sglang, torch, a command that is a host of kernels, and "
              "moetune for its own beside them; the first one's default is the default. Routing is "
              "given then");
}

Result<std::vector<HostChoice>> HostFlags::read() const {
  if (hosts.empty()) return std::vector<HostChoice>();
  return parse_hosts(hosts);
}

std::string usual_config_path(const DeviceProperties& device,
                              const std::vector<HostChoice>& hosts) {
  std::string path = get_config_path(device);
  if (path.empty() || hosts.empty()) return path;
  std::string names;
  for (const HostChoice& host : hosts) names += "-" + file_name_part(host.name);
  constexpr std::string_view kEnding = ".json";
  const size_t end = path.ends_with(kEnding) ? path.size() - kEnding.size() : path.size();
  return path.insert(end, names);
}

void put_host(Plan& plan, const std::vector<KernelHost>& hosts) {
  if (hosts.size() != 1 || hosts[0].choice.is_own()) return;
  const KernelHost& host = hosts[0];
  const auto runner = std::find_if(host.kernels.runners.begin(), host.kernels.runners.end(),
                                   [&](const auto& each) { return each->name() == plan.runner; });
  if (runner == host.kernels.runners.end()) return;
  Json defaults = Json::array();
  for (const DefaultInterval& interval : default_intervals(**runner)) {
    defaults.push_back({{"from", interval.from}, {"stages", stages_to_json(interval.candidate)}});
  }
  Json extra{{"host",
              {{"name", host.choice.name},
               {"versions", strings_to_json(host.kernels.versions)},
               {"device_name", host.kernels.device_name},
               {"defaults", std::move(defaults)}}}};
  plan.extra_json = print_json_line(extra);
}

}  // namespace moetune::cli

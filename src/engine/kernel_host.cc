#include "engine/kernel_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/child_process.h"
#include "base/environment.h"
#include "base/status_macros.h"
#include "engine/isolation.h"
#include "ops/moe/moe_workbench.h"

namespace moetune {
namespace {

constexpr const char* kOwn = "moetune";

// A virtual environment has its Python beside the programs that were installed into it.
std::string python() {
  if (const auto named = environment(Variable::kPython)) return quoted_for_shell(*named);
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = program.parent_path() / "python3";
  if (!error && std::filesystem::exists(beside, error)) return quoted_for_shell(beside.string());
  return "python3";
}

// Through a shell, which finds programs in PATH and splits the words as a user expects; what
// moetune adds comes after them. Sources and installed trees have the Python package beside them;
// in a virtual environment Python knows where it is.
std::vector<std::string> shell_command(const std::string& command) {
  std::string line = "exec " + command + " \"$@\"";
  const std::string folder = find_data_folder("python");
  if (!folder.empty()) {
    line = fmt::format("export PYTHONPATH={}\"${{PYTHONPATH:+:$PYTHONPATH}}\"; {}",
                       quoted_for_shell(folder), line);
  }
  return {"/bin/sh", "-c", line, "host"};
}

std::vector<std::string> packaged_command(const std::string& name) {
  return shell_command(fmt::format("{} -m moetune.host {}", python(), name));
}

bool is_name(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace

std::string quoted_for_shell(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Result<std::vector<HostChoice>> parse_hosts(const std::string& text) {
  std::vector<HostChoice> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    HostChoice host{text.substr(begin, end - begin), {}};
    begin = end + 1;
    const bool is_again = std::any_of(hosts.begin(), hosts.end(), [&](const HostChoice& other) {
      return other.name == host.name;
    });
    if (host.name.find_first_not_of(' ') == std::string::npos || is_again) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--host \"{}\" {}", text.substr(0, 80),
                               is_again ? "names one host twice" : "has an empty name"),
                   "name hosts as in moetune,vllm or give a command, as in \"python3 mine.py\""};
    }
    if (host.name != kOwn)
      host.command = is_name(host.name) ? packaged_command(host.name) : shell_command(host.name);
    hosts.push_back(std::move(host));
  }
  return hosts;
}

Result<KernelHost> start_kernel_host(const HostChoice& choice, Backend& backend,
                                     const std::string& device, const FusedMoeSpec& spec,
                                     const std::vector<Suggestion>& suggested,
                                     const WorkerPolicy& policy) {
  KernelHost host{.choice = choice,
                  .process = nullptr,
                  .options = {{"device", device_name(backend, device)}},
                  .kernels = {}};
  if (choice.is_own()) return host;
  // Importing an engine's packages from a cold disk takes its time.
  constexpr double kStartSeconds = 180;
  WorkerOptions options{.command = choice.command, .policy = policy, .foreign_name = choice.name};
  options.policy.start_s = std::max(policy.start_s, kStartSeconds);
  MOETUNE_ASSIGN_OR_RETURN(host.process, WorkerHost::start(std::move(options)));
  const WorkerPlace place{.problem = moe_problem(hosted_spec(spec)), .options = host.options};
  auto kernels = describe_kernels(host.process, place, suggested);
  if (!kernels.ok()) {
    Error error = std::move(kernels).error();
    error.message = fmt::format("the host {}: {}", choice.name, error.message);
    return error;
  }
  host.kernels = std::move(kernels).value();
  return host;
}

FusedMoeSpec hosted_spec(FusedMoeSpec spec) {
  spec.given_routing = true;
  return spec;
}

}  // namespace moetune

#include "cpu/topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace moetune::cpu {
namespace {

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<long long> read_number(const std::string& path) {
  const std::optional<std::string> line = read_line(path);
  long long value = 0;
  if (!line || std::from_chars(line->data(), line->data() + line->size(), value).ec != std::errc())
    return std::nullopt;
  return value;
}

// "512K", "32M" or "32768".
size_t parse_size(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  const char unit = end == text.data() + text.size() ? ' ' : *end;
  return value << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

std::string processor_name(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    if (first != std::string::npos) return line.substr(first);
  }
  return "unknown";
}

// The smaller of the limits of a group and of all groups above it.
std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// cpu.max is "<quota> <period>" or "max <period>", in microseconds.
std::optional<double> quota_v2(const std::string& folder) {
  const std::optional<std::string> line = read_line(folder + "/cpu.max");
  if (!line) return std::nullopt;
  std::istringstream fields(*line);
  double quota = 0;
  double period = 0;
  if (!(fields >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_v1(const std::string& folder) {
  const std::optional<long long> quota = read_number(folder + "/cpu.cfs_quota_us");
  const std::optional<long long> period = read_number(folder + "/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Walks up from this process's group. Inside a container its path may not exist below the mount;
// the mount's root then is the container's own group, which the walk ends with.
std::optional<double> cgroup_quota(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::optional<double> quota;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (v2 ? "" : "/cpu");
    for (std::string path = line.substr(second + 1);; path.resize(path.find_last_of('/'))) {
      if (path == "/") path.clear();
      quota = smaller(quota, v2 ? quota_v2(mount + path) : quota_v1(mount + path));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return quota;
}

struct Cache {
  int level = 0;
  size_t bytes = 0;
  std::string shared_by;
};

std::vector<Cache> data_caches(const std::string& cpu_folder) {
  std::vector<Cache> caches;
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("{}/cache/index{}/", cpu_folder, index);
    const std::optional<long long> level = read_number(folder + "level");
    if (!level) return caches;
    const std::string type = read_line(folder + "type").value_or("");
    if (type == "Instruction") continue;
    caches.push_back({static_cast<int>(*level), parse_size(read_line(folder + "size").value_or("")),
                      read_line(folder + "shared_cpu_list").value_or("")});
  }
}

void read_caches(const std::string& root, Topology& topology) {
  std::set<std::pair<int, std::string>> counted;
  for (const Processor& processor : topology.processors)
    for (const Cache& cache :
         data_caches(fmt::format("{}/sys/devices/system/cpu/cpu{}", root, processor.id))) {
      if (cache.level == 1) topology.l1_bytes = cache.bytes;
      if (cache.level == 2) topology.l2_bytes = cache.bytes;
      if (cache.level == 3 && counted.insert({cache.level, cache.shared_by}).second)
        topology.l3_bytes += cache.bytes;
    }
}

}  // namespace

int Topology::cores() const {
  std::set<std::pair<int, int>> distinct;
  for (const Processor& processor : processors)
    distinct.insert({processor.package, processor.core});
  return static_cast<int>(distinct.size());
}

int Topology::default_threads() const {
  const int paid = quota ? std::max(1, static_cast<int>(*quota)) : cores();
  return std::min(cores(), paid);
}

std::vector<int> Topology::placement(int threads) const {
  std::vector<std::pair<int, int>> by_turn;  // (how many of its core come before it, id)
  std::vector<std::pair<int, int>> seen;
  for (const Processor& processor : processors) {
    const std::pair<int, int> core{processor.package, processor.core};
    by_turn.emplace_back(static_cast<int>(std::count(seen.begin(), seen.end(), core)),
                         processor.id);
    seen.push_back(core);
  }
  std::sort(by_turn.begin(), by_turn.end());
  std::vector<int> cpus;
  for (int thread = 0; thread < threads; ++thread) {
    const auto index = static_cast<size_t>(thread);
    cpus.push_back(index < by_turn.size() ? by_turn[index].second : -1);
  }
  return cpus;
}

std::vector<int> affinity_mask() {
  std::vector<int> cpus;
  for (size_t bytes = sizeof(cpu_set_t); bytes <= 64 * sizeof(cpu_set_t); bytes *= 2) {
    std::vector<cpu_set_t> mask(bytes / sizeof(cpu_set_t));
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    for (size_t cpu = 0; cpu < bytes * 8; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, mask.data())) cpus.push_back(static_cast<int>(cpu));
    break;
  }
  if (cpus.empty())
    for (unsigned cpu = 0; cpu < std::max(1u, std::thread::hardware_concurrency()); ++cpu)
      cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

Topology read_topology(const std::string& root) { return read_topology(root, affinity_mask()); }

Topology read_topology(const std::string& root, const std::vector<int>& allowed) {
  Topology topology;
  topology.name = processor_name(root);
  for (const int id : allowed) {
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, id);
    topology.processors.push_back(
        {id, static_cast<int>(read_number(folder + "core_id").value_or(id)),
         static_cast<int>(read_number(folder + "physical_package_id").value_or(0))});
  }
  topology.quota = cgroup_quota(root);
  read_caches(root, topology);
  return topology;
}

}  // namespace moetune::cpu

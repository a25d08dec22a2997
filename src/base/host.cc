#include "base/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/file.h"

namespace moetune {
namespace {

constexpr size_t kMaxSystemFileBytes = size_t{4} << 20;

std::optional<size_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The rest of the first line that starts with `name`, behind its colon.
std::optional<std::string> line_of(const std::string& path, std::string_view name) {
  const Result<std::string> content = read_file(path, kMaxSystemFileBytes);
  if (!content.ok()) return std::nullopt;
  const size_t start = content->starts_with(name) ? 0 : content->find("\n" + std::string(name));
  if (start == std::string::npos) return std::nullopt;
  const size_t colon = content->find(':', start);
  if (colon == std::string::npos) return std::nullopt;
  const size_t text = content->find_first_not_of(" \t", colon + 1);
  if (text == std::string::npos) return std::nullopt;
  return content->substr(text, content->find('\n', text) - text);
}

std::optional<size_t> number_in(const std::string& path) {
  const Result<std::string> content = read_file(path, kMaxSystemFileBytes);
  return content.ok() ? leading_number(*content) : std::nullopt;
}

// "32768K" and "16M", as the kernel writes cache sizes.
size_t cache_bytes(const std::string& path) {
  const Result<std::string> content = read_file(path, kMaxSystemFileBytes);
  if (!content.ok()) return 0;
  const size_t number = leading_number(*content).value_or(0);
  if (content->find('M') != std::string::npos) return number << 20;
  return content->find('K') != std::string::npos ? number << 10 : number;
}

}  // namespace

size_t host_available_memory_bytes() {
  size_t available = 0;
  if (auto line = line_of("/proc/meminfo", "MemAvailable")) {
    available = leading_number(*line).value_or(0) << 10;
  }
  // Inside of a container its own group is the root that it sees.
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    const size_t left = *limit > *used ? *limit - *used : 0;
    available = available == 0 ? left : std::min(available, left);
  }
  return available;
}

size_t host_last_level_cache_bytes() {
  size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    largest = std::max(largest, cache_bytes(fmt::format(
                                    "/sys/devices/system/cpu/cpu0/cache/index{}/size", index)));
  }
  return largest;
}

std::string host_processor_name() { return line_of("/proc/cpuinfo", "model name").value_or(""); }

}  // namespace moetune

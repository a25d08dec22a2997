// What the system says of processes, for tests that nothing is left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace moetune::testing {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  char state = '?';  ///< Of its first thread. 'Z': ended, and nobody has asked how.
  int threads = 0;
  /// A first thread that has ended may have others behind it, which keep descriptors open.
  bool is_running() const { return state != 'Z' || threads > 1; }
};

/// All processes that can be seen. Any of them may be gone by the time it is looked at.
inline std::vector<ProcessInfo> all_processes() {
  std::vector<ProcessInfo> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    ProcessInfo info;
    // The name, in parentheses, may hold anything.
    const size_t end = text.rfind(')');
    if (end == std::string::npos) continue;
    info.pid = static_cast<pid_t>(std::stol(text));
    constexpr const char* kFields =
        " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d";
    if (std::sscanf(text.c_str() + end + 1, kFields, &info.state, &info.parent, &info.group,
                    &info.threads) == 4)
      found.push_back(info);
  }
  return found;
}

/// Those of a group that still run.
inline int running_in_group(pid_t group) {
  int count = 0;
  for (const ProcessInfo& info : all_processes()) count += info.group == group && info.is_running();
  return count;
}

/// How many of a group are left once they have had time to end: a process that was killed goes on
/// for as long as the system takes to get to it, and only its own parent can wait for it. The
/// tracer that a leak check starts is such a process too.
inline int left_in_group(pid_t group) {
  int left = running_in_group(group);
  for (int tries = 0; tries < 500 && left > 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    left = running_in_group(group);
  }
  return left;
}

/// Children of `parent`, ended ones included.
inline int children_of(pid_t parent) {
  int count = 0;
  for (const ProcessInfo& info : all_processes()) count += info.parent == parent;
  return count;
}

/// Descriptors that this process has open.
inline int open_files() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

}  // namespace moetune::testing

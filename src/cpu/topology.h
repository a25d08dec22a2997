// What the processor looks like to this process: the processors it may run on, which of them share
// a core, cache sizes, and how much processor time a container grants.
//
// Read from Linux's sysfs and procfs (Documentation/admin-guide/cputopology.rst and cgroup-v2.rst).
// Whatever is missing there, as in some containers, is taken to be as simple as possible: every
// processor a core, cache sizes unknown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace moetune::cpu {

struct Processor {
  int id = 0;       ///< The system's number, as in an affinity mask.
  int core = 0;     ///< Unique within a package.
  int package = 0;  ///< Socket.
};

struct Topology {
  std::string
      name;  ///< "AMD EPYC 7763 64-Core Processor"; "unknown" where the system does not say.
  std::vector<Processor> processors;  ///< In the affinity mask, ascending by id. Never empty.
  std::optional<double>
      quota;  ///< Processors' worth of time that a control group grants, where it limits it.
  size_t l1_bytes = 0;  ///< Data cache of a core; 0: unknown, as below.
  size_t l2_bytes = 0;  ///< Of a core.
  size_t l3_bytes = 0;  ///< Sum of the last-level caches that `processors` reach.

  /// Distinct cores.
  int cores() const;
  /// Threads worth starting: one per core, no more than the quota pays for, at least one.
  int default_threads() const;
  /// Where `threads` threads go: one processor on each core first, then the cores' other threads;
  /// -1 for what is beyond the number of processors.
  std::vector<int> placement(int threads) const;
};

/// Reads it from a file tree that has `sys/` and `proc/` below `root`, with the calling thread's
/// affinity mask.
Topology read_topology(const std::string& root = "");

/// The same with a given mask (tests).
Topology read_topology(const std::string& root, const std::vector<int>& allowed);

/// Processors of the calling thread's affinity mask. Never empty.
std::vector<int> affinity_mask();

}  // namespace moetune::cpu

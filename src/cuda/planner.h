// What fits on a multiprocessor, worked out before anything is compiled.
//
// Limits come from NVIDIA's CUDA C++ Programming Guide ("Technical specifications per compute
// capability") and, on a machine with the device, from the driver. The arithmetic of blocks per
// multiprocessor is that of the occupancy calculator: registers are given to warps in units of 256,
// shared memory to blocks in units of 128 bytes after 1 KiB that the system keeps for each block.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/result.h"

namespace moetune::cuda {

/// A compilation target: 9.0 is {9, 0}, sm_120a is {12, 0, 'a'}.
struct Architecture {
  int major = 0;
  int minor = 0;
  char suffix =
      0;  ///< 'a' or 'f', for instructions that only this architecture (family) has; 0: none.

  int sm() const { return major * 10 + minor; }
  std::string text() const;  ///< "sm_90", "sm_120a"
  bool operator==(const Architecture&) const = default;

  /// Reads "sm_90", "90", "9.0", "sm_120a". kInvalidArgument for anything else.
  static Result<Architecture> parse(std::string_view text);
};

/// What one multiprocessor and one block have. Bytes, 32-bit registers.
struct ArchitectureLimits {
  int sm = 0;                ///< 90 for compute capability 9.0
  int shared_per_block = 0;  ///< The most a block can ask for (opt-in).
  int shared_per_multiprocessor = 0;
  int shared_reserved = 1024;  ///< Kept by the system for each block.
  int registers_per_multiprocessor = 65536;
  int registers_per_thread = 255;
  int threads_per_block = 1024;
  int warps_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
};

/// The published limits of a compute capability (80, 86, 87, 89, 90, 100, 103, 120, 121); nullptr
/// for one not known.
const ArchitectureLimits* find_limits(int sm);

/// Everything find_limits() knows, in ascending order.
const std::vector<ArchitectureLimits>& known_limits();

/// What a kernel asks for.
struct KernelNeeds {
  int threads = 0;       ///< Per block.
  int registers = 0;     ///< Per thread; 0: not known yet, does not limit.
  int shared_bytes = 0;  ///< Per block, static and dynamic.
  int min_blocks =
      1;  ///< Blocks per multiprocessor the kernel was written for (its launch bounds).
};

struct Fit {
  int blocks_per_multiprocessor = 0;  ///< 0: it cannot be launched.
  std::string limited_by;             ///< "shared memory", "registers", "warps" or "blocks".
  std::string reason;  ///< Why it is excluded, with both numbers; empty where it fits.

  bool fits() const { return reason.empty(); }
};

/// Whether `needs` can run with `needs.min_blocks` blocks on each multiprocessor, and how many fit.
/// For a Space rule:
///   return plan_kernel(limits, needs).reason;   // "needs 102,400 bytes of shared memory, sm_120
///   has 101,376 per block"
Fit plan_kernel(const ArchitectureLimits& limits, const KernelNeeds& needs);

/// Registers a thread may have at most so that `blocks` blocks of `threads` threads fit: what to
/// give -maxrregcount or what __launch_bounds__ will enforce. Never above
/// limits.registers_per_thread.
int register_budget(const ArchitectureLimits& limits, int threads, int blocks);

}  // namespace moetune::cuda

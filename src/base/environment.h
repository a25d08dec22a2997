// Every environment variable that moetune reads, in one table. Nothing else in the project calls
// getenv().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace moetune {

enum class Variable : uint8_t {
  kDefault,
  kConfig,
  kCpuIsa,
  kCpuThreads,
  kXdgCacheHome,
  kHome,
  kNoColor,
  kWorker,
  kPython,
  kCudaPath,
  kJitCacheBytes,
  kCudaHome,
  kPath,
  kPythonPath,
  kVirtualEnv,
  kCondaPrefix,
};

struct VariableInfo {
  Variable variable;
  const char* name;
  const char* meaning;  ///< One line for docs and `--help`.
};

/// All of them, in the order of the enumeration.
std::span<const VariableInfo> environment_variables();

/// The value now; nothing where it is unset or empty. Any thread, as long as none changes the
/// environment meanwhile.
std::optional<std::string> environment(Variable variable);

/// Whether a switch is on: set, and none of "0", "false", "no", "off".
bool environment_switch(Variable variable);

/// Where moetune keeps what it can make again: $XDG_CACHE_HOME/moetune, else $HOME/.cache/moetune.
/// Relative values are ignored, as the XDG base directory specification asks. Nothing where neither
/// variable helps.
std::optional<std::string> cache_folder();

}  // namespace moetune

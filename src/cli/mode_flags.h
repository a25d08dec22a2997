// Flags that say which of the tuning results a command may use.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "cli/job.h"

namespace moetune::cli {

struct ModeFlags {
  bool deterministic = false;
  bool pinned = false;
  bool defaults_only = false;

  void declare(Flags& flags);
  /// kInvalidArgument for modes that contradict each other, and for --pinned without a file.
  Status check(const std::string& config) const;
  AutoTunerOptions tuner_options() const { return {.deterministic = deterministic}; }
};

/// Puts the plan in force that the mode asks for: load_configuration(), or with --pinned exactly
/// what the file says up to `most_tokens`, or with --defaults-only nothing. Returns the path that
/// was read; empty: there was none.
Result<std::string> load_plan(Job& job, const std::string& config, const ModeFlags& mode,
                              int64_t most_tokens, Output& output);

}  // namespace moetune::cli

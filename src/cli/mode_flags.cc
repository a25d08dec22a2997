#include "cli/mode_flags.h"

#include <fmt/format.h>

#include "base/status_macros.h"

namespace moetune::cli {

void ModeFlags::declare(Flags& flags) {
  flags.toggle("--deterministic", &deterministic,
               "Only kernels that give the same bits on every run");
  flags.toggle("--pinned", &pinned,
               "Exactly what --config says; an error where it is not for this device and layer");
  flags.toggle("--defaults-only", &defaults_only, "Use no tuning result");
}

Status ModeFlags::check(const std::string& config) const {
  if (pinned && defaults_only) {
    return Error{ErrorCode::kInvalidArgument, "--pinned and --defaults-only contradict each other",
                 "leave one out"};
  }
  if (defaults_only && !config.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--config and --defaults-only contradict each other",
                 "leave one out"};
  }
  if (!pinned || !config.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, "--pinned without --config",
               "name the tuned configuration to keep to"};
}

Result<std::string> load_plan(Job& job, const std::string& config, const ModeFlags& mode,
                              int64_t most_tokens, Output& output) {
  if (mode.defaults_only) {
    job.tuner->use_defaults(true);
    return std::string();
  }
  if (!mode.pinned) return load_configuration(job, config, output);
  MOETUNE_ASSIGN_OR_RETURN(const TunedConfiguration configuration,
                           TunedConfiguration::load(config));
  Status pinned =
      job.tuner->pin(configuration, job.session->problem(), job.session->runners(), most_tokens);
  if (pinned.ok()) return config;
  Error error = std::move(pinned).error();
  error.message = fmt::format("{}: {}", config, error.message);
  return error;
}

}  // namespace moetune::cli

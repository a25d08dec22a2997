// What executors share: the helper process, whom it must not meet again, and when to give up.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "worker/helper_process.h"
#include "worker/messages.h"
#include "worker/worker_host.h"

namespace moetune {

/// Behind WorkerHost. Not thread-safe.
struct WorkerHost::State {
  explicit State(WorkerOptions given) : options(std::move(given)) {}

  /// A living helper, a new one where the last has died. kInterrupted, with `trouble`, where there
  /// is none any more.
  Status ensure();
  /// Asks the living helper. `run_s` limits everything but compiling; `doing` names it.
  worker::Reply ask(Json request, std::span<const Descriptor> files, double run_s,
                    const char* doing);
  /// The helper did what it was asked to.
  void good() { deaths_in_row = 0; }
  /// Ends a helper that cannot be trusted any more.
  void discard(const std::string& why);
  double compile_limit_s() const;

  WorkerOptions options;
  std::unique_ptr<worker::HelperProcess> helper;
  int started = 0;  ///< Helpers so far: the number of the living one.
  int deaths_in_row = 0;
  std::string trouble;
  bool has_given_up = false;
  std::map<std::string, Error> quarantined;  ///< By text and version of the candidate.
  std::vector<double> compile_seconds;
  worker::SessionId last_session = 0;
  worker::OutputTail last_output{0};

  // The stop, as something that poll() sees.
  std::stop_token stop;
  Descriptor stop_event;
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
};

}  // namespace moetune

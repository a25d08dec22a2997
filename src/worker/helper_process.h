// One running helper: its process, the conversation with it, and what it prints.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/json.h"
#include "worker/line_channel.h"
#include "worker/output_tail.h"
#include "worker/worker_host.h"

namespace moetune::worker {

/// How long a request may stay in each phase, and how it ends early.
struct Limits {
  double run_s = 0;  ///< Also for requests without phases.
  double compile_s = 0;
  double stop_grace_s = 0;
  int stop = -1;                  ///< Readable (poll) when a stop was requested; -1: never.
  const char* doing = "at work";  ///< Of what is not compiling, for messages: "packing weights".
};

/// How a request ended.
struct Reply {
  enum class Kind : uint8_t {
    kAnswer,   ///< `answer`.
    kError,    ///< The helper said `error`, and lives.
    kDied,     ///< The helper is gone: `error` says how, as of the phase it was in.
    kStopped,  ///< A stop was requested, and the helper was ended for it.
  };
  Kind kind = Kind::kAnswer;
  Line answer = {};
  Error error = {};
  double run_seconds = 0;      ///< Without compiling.
  double compile_seconds = 0;  ///< 0: nothing was compiled.
};

/// Not thread-safe. Ends the process when destroyed.
class HelperProcess {
 public:
  /// Starts one and hears its hello. Errors as WorkerHost::start().
  static Result<std::unique_ptr<HelperProcess>> start(const WorkerOptions& options);
  /// The same with a helper that somebody else has started, at the other end of a socket.
  static Result<std::unique_ptr<HelperProcess>> attach(Descriptor socket,
                                                       const WorkerOptions& options);

  pid_t pid() const { return process_.pid(); }
  /// How it ended, where it did so between requests; nothing while it runs.
  std::optional<std::string> found_dead();

  /// Sends a request, adds its "id", and waits for how it ends.
  Reply ask(Json request, std::span<const Descriptor> files, const Limits& limits);
  /// Sends what nobody answers. A helper that does not take it is ended, which found_dead() tells.
  void tell(const Json& hint) {
    if (!channel_.send(hint).ok()) process_.end();
  }

  const OutputTail& output() const { return output_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Conversation;

  HelperProcess(ChildProcess process, Descriptor socket, Descriptor output,
                const WorkerPolicy& policy);

  Status hear_hello(const WorkerOptions& options);
  /// Waits until there is something new, or `until`.
  enum class Event : uint8_t { kNews, kTime, kStop, kGone };
  Event wait(Clock::time_point until, int stop);
  void read_output();
  /// How the conversation ended, if a line that has come says so.
  std::optional<Reply> hear(Conversation& conversation);
  Reply answer(Conversation& conversation, Line line);
  Reply overdue(const Conversation& conversation);
  Reply gone(const Conversation& conversation);
  Reply dead(const Conversation& conversation, ErrorCode code, std::string how);

  ChildProcess process_;
  LineChannel channel_;
  Descriptor output_end_;
  OutputTail output_;
  int64_t last_id_ = 0;
};

}  // namespace moetune::worker

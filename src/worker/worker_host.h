// The parent's side of worker isolation: a helper process, kept alive, and executors whose
// candidates run in it.
//
//   auto host = WorkerHost::start({});
//   auto executor = make_worker_executor(*host, {problem, {{"device", "cpu"}}});
//
// A candidate that kills the helper, or hangs it, costs a new helper and is never sent again. The
// new one gets what the old one held: each executor loads and selects again before its next
// request.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/json.h"
#include "moetune/measuring.h"
#include "moetune/result.h"
#include "tuner/ceilings.h"

namespace moetune {

/// Limits of a helper, with their reasons. Seconds of wall clock.
struct WorkerPolicy {
  double start_s = 60;    ///< Until a helper said hello, and until it opened its device.
  double load_s = 900;    ///< Packing a layer's weights, and making inputs: minutes on a small CPU.
  double compile_s = 30;  ///< Compiling takes at most this, or ...
  double compile_factor = 2;  ///< ... this times the 90th percentile of what it took so far.
  double run_s = 2;           ///< A request that runs a candidate takes at most this, or ...
  double run_factor = 100;    ///< ... this times what its calls took the first candidate there.
  double first_run_s = 30;    ///< For the first one at a size, nothing is known: this, or ...
  double slowest_rate = 1e9;  ///< ... its least bytes and operations at this many a second.
  double ceilings_s = 60;     ///< Measuring what the device can do at best takes some seconds.
  double read_s = 10;         ///< A helper takes this long, at most, to read a request.
  double stop_grace_s = 0.5;  ///< After a stop was requested, a request has this long to end.
  int strikes = 3;            ///< Deaths in a row without one good answer: then it gives up.
  size_t output_bytes = size_t{64} << 10;  ///< The last of what a helper printed is kept.
  /// Private memory of a helper; 0: 15/16 of what the machine has to give when it starts.
  uint64_t memory_bytes = 0;
};

/// The helper program: $MOETUNE_WORKER, else moetune-worker beside the running program or in
/// ../libexec/moetune. Empty where there is none.
std::vector<std::string> find_worker_program();

struct WorkerOptions {
  /// The helper program and its first arguments; empty: find_worker_program().
  std::vector<std::string> command;
  WorkerPolicy policy;
  /// Of a host of other kernels (docs/worker-protocol.md), whose version is its own: what messages
  /// call it. Empty: the program is moetune-worker of this build.
  std::string foreign_name;
};

/// One helper process, replaced when it dies. Shared by the executors of one device. Not
/// thread-safe.
class WorkerHost {
 public:
  /// Starts a helper. kNotFound where there is none; kUnsupported for one of another version,
  /// naming both.
  static Result<std::shared_ptr<WorkerHost>> start(WorkerOptions options);
  /// Begins with a helper that somebody else has started and will end, at the other end of
  /// `socket`; when it is gone, `options.command` is started. Errors as start().
  static Result<std::shared_ptr<WorkerHost>> attach(Descriptor socket, WorkerOptions options);
  ~WorkerHost();
  WorkerHost(const WorkerHost&) = delete;
  WorkerHost& operator=(const WorkerHost&) = delete;

  /// When a stop is requested, a request at work ends soon, with kInterrupted, whatever the helper
  /// does.
  void stop_on(std::stop_token stop);

  /// Helpers that were started after the first.
  int respawns() const;
  /// Of the helper, for people and tests; -1 where none runs.
  pid_t pid() const;
  /// Why no more helpers are started, or why the last one could not be brought back to work. Empty:
  /// all is well.
  const std::string& trouble() const;
  /// The last of what the helper printed during the latest request.
  std::string output() const;

 private:
  friend class WorkerExecutor;
  struct State;
  explicit WorkerHost(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A bench's weights as files in memory, for helpers that do not make them: each tensor of all
/// chunks together, [chunks, ...], tensor after tensor. Made when first asked for, and kept, so
/// that several helpers share them. Not thread-safe; the bench must outlive it.
class WeightFiles {
 public:
  struct File {
    Tensors tensors;  ///< Without data: in the order in which they are in the file.
    Descriptor file;
  };

  explicit WeightFiles(Workbench& bench) : bench_(bench) {}
  /// Errors are the source's, kUnsupported where chunks differ in shape, and kIo or kOutOfMemory
  /// where there is no room.
  Result<const File*> at(Scale scale);

 private:
  Workbench& bench_;
  std::map<Scale, File> files_;
};

/// What an executor in a helper works on.
struct WorkerPlace {
  Problem problem;
  /// For the helper's maker of places (worker/registry.h): {"device", "cuda:0"}, ...
  std::map<std::string, std::string> options;
  /// DeviceProperties::key() that the helper's device must have; empty: any.
  std::string device_key;
  /// The parent's workbench, which must outlive the executor: predicts the longest a first run can
  /// take. Null: nothing is predicted.
  Workbench* bench = nullptr;
  /// Sends the bench's arguments instead of having the helper make them.
  bool sends_arguments = false;
  /// Sends the weights too. Null: the helper makes them, or the operator has none.
  std::shared_ptr<WeightFiles> weights;
};

/// Opens the place in the helper. Errors are the helper's; kUnsupported where its device is another
/// one. The executor's own errors, beside those of Executor: kCompile or kRun naming the signal for
/// a candidate that killed the helper (kOutOfMemory where the system ended it), kDeadline for one
/// that took too long, kInterrupted where nothing can be said of the candidate: a stop was
/// requested, or WorkerHost::trouble().
Result<std::unique_ptr<Executor>> make_worker_executor(std::shared_ptr<WorkerHost> host,
                                                       WorkerPlace place);

/// What the helper's device can do at best, `read_bytes` read at a time; nothing else should be at
/// work there. Opens the place for it. Errors as of make_worker_executor(); kUnsupported also for a
/// helper that measures no ceilings.
Result<Ceilings> measure_worker_ceilings(std::shared_ptr<WorkerHost> host, WorkerPlace place,
                                         size_t read_bytes);

/// Asks a helper something of a problem: a request's fields go in, the answer's come out.
using WorkerQuestion = std::function<Result<Json>(Json request)>;

/// For requests that neither load nor run anything ("describe", say): opens the place, again
/// whenever a new helper has taken the last one's place, and adds the session. Errors as of
/// make_worker_executor(), and those that the helper answers. Not thread-safe.
Result<WorkerQuestion> make_worker_question(std::shared_ptr<WorkerHost> host, WorkerPlace place);

}  // namespace moetune

// Recorded work: calls captured from a stream, replayed as one graph, and timed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/context.h"
#include "moetune/measuring.h"
#include "moetune/result.h"

namespace moetune::cuda {

/// Captures `calls`, in their order, and makes a graph of them that can be replayed. Each call
/// begins when the one before has ended entirely: between them there is no programmatic edge. The
/// first call that fails ends it, with its error; work that cannot be captured (a synchronisation,
/// an allocation) is kRun in the driver's words.
Result<GraphExec> record_graph(const ContextPtr& context, CUstream stream,
                               std::span<const Device::DeviceCall> calls);

/// Holds a stream back until the host says so, so that what is queued meanwhile runs without
/// waiting for the host.
class StreamGate {
 public:
  static Result<std::unique_ptr<StreamGate>> make(const ContextPtr& context);
  ~StreamGate();
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  /// Work queued on `stream` from now on waits for open(). At most some hundred operations may be
  /// queued before it is opened: a full queue makes the queuing thread wait for the stream.
  Status close(CUstream stream);
  void open();

 private:
  StreamGate(ContextPtr context, uint32_t* flag, CUdeviceptr address)
      : context_(std::move(context)), flag_(flag), address_(address) {}
  ContextPtr context_;
  uint32_t* flag_;  // In host memory that the device sees.
  CUdeviceptr address_;
  uint32_t ticket_ = 0;  // What the flag must reach for the gate closed last to open.
};

/// A graph of calls as a TimedSequence: every replay is between two events, all queued behind a
/// closed gate.
Result<std::unique_ptr<TimedSequence>> make_timed_graph(const ContextPtr& context, CUstream stream,
                                                        std::vector<Device::DeviceCall> calls);

}  // namespace moetune::cuda

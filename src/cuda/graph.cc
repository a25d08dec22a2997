#include "cuda/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/status_macros.h"

namespace moetune::cuda {
namespace {

// Replays queued behind one closed gate. Each takes three places in the driver's queue (two events
// and a graph), which has about a thousand: were it full, queuing would wait for a stream that
// waits for us.
constexpr int kReplaysPerGate = 32;

// Ends a capture that is still on when its scope ends, so that the stream can be used again.
class Capture {
 public:
  Capture(const ContextPtr& context, CUstream stream) : context_(context), stream_(stream) {}
  ~Capture() {
    if (on_) (void)end();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Status begin() {
    // Of this thread only: what other threads of the process do meanwhile is their business.
    MOETUNE_CUDA_CHECK(context_->driver(), cuStreamBeginCapture(stream_, kCaptureThreadLocal),
                       "starting to record");
    on_ = true;
    return {};
  }

  // Makes all that follows wait for all that was captured, by a node that does nothing.
  Status separate() {
    const Driver& driver = context_->driver();
    int status = 0;
    uint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* last = nullptr;
    size_t count = 0;
    MOETUNE_CUDA_CHECK(driver, cuStreamGetCaptureInfo(stream_, &status, &id, &graph, &last, &count),
                       "recording a call");
    if (count == 0) return {};
    CUgraphNode node = nullptr;
    MOETUNE_CUDA_CHECK(driver, cuGraphAddEmptyNode(&node, graph, last, count), "recording a call");
    MOETUNE_CUDA_CHECK(
        driver, cuStreamUpdateCaptureDependencies(stream_, &node, 1, kCaptureDependenciesSet),
        "recording a call");
    return {};
  }

  Result<Graph> end() {
    on_ = false;
    CUgraph graph = nullptr;
    MOETUNE_CUDA_CHECK(context_->driver(), cuStreamEndCapture(stream_, &graph), "recording a call");
    return Graph(context_, graph);
  }

 private:
  const ContextPtr& context_;
  CUstream stream_;
  bool on_ = false;
};

class TimedGraph final : public TimedSequence {
 public:
  TimedGraph(CUstream stream, size_t calls, GraphExec graph, std::unique_ptr<StreamGate> gate)
      : stream_(stream), calls_(calls), graph_(std::move(graph)), gate_(std::move(gate)) {}

  Result<double> sample_us(int repetitions) override {
    double total_ms = 0;
    for (int done = 0; done < repetitions; done += kReplaysPerGate) {
      MOETUNE_ASSIGN_OR_RETURN(const double ms,
                               replay(std::min(kReplaysPerGate, repetitions - done)));
      total_ms += ms;
    }
    const double us = total_ms * 1e3 / (static_cast<double>(calls_) * std::max(1, repetitions));
    if (!std::isfinite(us) || us <= 0) {
      return Error{ErrorCode::kMeasurement,
                   fmt::format("{} calls took {} us by the GPU's events", calls_, us),
                   "a candidate that launches nothing does this"};
    }
    return us;
  }

 private:
  // Milliseconds of `count` replays, what lies between them left out.
  Result<double> replay(int count) {
    MOETUNE_RETURN_IF_ERROR(graph_.context()->make_current());
    MOETUNE_RETURN_IF_ERROR(make_events(static_cast<size_t>(count) * 2));
    MOETUNE_RETURN_IF_ERROR(gate_->close(stream_));
    const Status queued = queue(count);
    gate_->open();
    const Driver& driver = graph_.context()->driver();
    MOETUNE_CUDA_CHECK(driver, cuStreamSynchronize(stream_), "replaying a graph");
    MOETUNE_RETURN_IF_ERROR(queued);
    double total_ms = 0;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      float ms = 0;
      MOETUNE_CUDA_CHECK(driver,
                         cuEventElapsedTime(&ms, events_[2 * i].get(), events_[2 * i + 1].get()),
                         "reading the GPU's time");
      total_ms += static_cast<double>(ms);
    }
    return total_ms;
  }

  Status queue(int count) {
    const Driver& driver = graph_.context()->driver();
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      MOETUNE_CUDA_CHECK(driver, cuEventRecord(events_[2 * i].get(), stream_), "timing a graph");
      MOETUNE_CUDA_CHECK(driver, cuGraphLaunch(graph_.get(), stream_), "launching a graph");
      MOETUNE_CUDA_CHECK(driver, cuEventRecord(events_[2 * i + 1].get(), stream_),
                         "timing a graph");
    }
    return {};
  }

  Status make_events(size_t count) {
    while (events_.size() < count) {
      MOETUNE_ASSIGN_OR_RETURN(Event event, make_event(graph_.context()));
      events_.push_back(std::move(event));
    }
    return {};
  }

  CUstream stream_;
  size_t calls_;
  GraphExec graph_;
  std::unique_ptr<StreamGate> gate_;
  std::vector<Event> events_;
};

}  // namespace

Result<GraphExec> record_graph(const ContextPtr& context, CUstream stream,
                               std::span<const Device::DeviceCall> calls) {
  MOETUNE_RETURN_IF_ERROR(context->make_current());
  Capture capture(context, stream);
  MOETUNE_RETURN_IF_ERROR(capture.begin());
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) MOETUNE_RETURN_IF_ERROR(capture.separate());
    MOETUNE_RETURN_IF_ERROR(calls[i](stream));
  }
  MOETUNE_ASSIGN_OR_RETURN(const Graph graph, capture.end());
  CUgraphExec handle = nullptr;
  MOETUNE_CUDA_CHECK(context->driver(), cuGraphInstantiate(&handle, graph.get(), 0),
                     "making a graph");
  GraphExec ready(context, handle);
  MOETUNE_CUDA_CHECK(context->driver(), cuGraphUpload(handle, stream), "uploading a graph");
  return ready;
}

Result<std::unique_ptr<StreamGate>> StreamGate::make(const ContextPtr& context) {
  const Driver& driver = context->driver();
  void* memory = nullptr;
  MOETUNE_CUDA_CHECK(driver, cuMemHostAlloc(&memory, sizeof(uint32_t), kHostMemoryMapped),
                     "allocating host memory");
  auto* flag = static_cast<uint32_t*>(memory);
  *flag = 0;
  auto gate = std::unique_ptr<StreamGate>(new StreamGate(context, flag, 0));
  MOETUNE_CUDA_CHECK(driver, cuMemHostGetDevicePointer(&gate->address_, memory, 0),
                     "mapping host memory");
  return gate;
}

StreamGate::~StreamGate() {
  open();
  if (context_->make_current().ok()) context_->driver().cuMemFreeHost(flag_);
}

Status StreamGate::close(CUstream stream) {
  ++ticket_;
  // Waits until the flag is at or above the ticket, in the sense of 32-bit numbers that wrap
  // around.
  constexpr unsigned kAtLeast = 0;
  return to_status(context_->driver(),
                   context_->driver().cuStreamWaitValue32(stream, address_, ticket_, kAtLeast),
                   "holding a stream back");
}

void StreamGate::open() { std::atomic_ref(*flag_).store(ticket_, std::memory_order_release); }

Result<std::unique_ptr<TimedSequence>> make_timed_graph(const ContextPtr& context, CUstream stream,
                                                        std::vector<Device::DeviceCall> calls) {
  if (calls.empty()) return Error{ErrorCode::kInvalidArgument, "no calls to time"};
  MOETUNE_ASSIGN_OR_RETURN(GraphExec graph, record_graph(context, stream, calls));
  MOETUNE_ASSIGN_OR_RETURN(auto gate, StreamGate::make(context));
  return std::unique_ptr<TimedSequence>(
      std::make_unique<TimedGraph>(stream, calls.size(), std::move(graph), std::move(gate)));
}

}  // namespace moetune::cuda

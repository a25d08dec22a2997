// What a parent sends to a helper (peer.h says how the input begins): every request is answered or
// ends the conversation. The operator is a harmless one: y = 2 x.
#include <algorithm>
#include <array>

#include "fuzz/fuzz_target.h"
#include "fuzz/peer.h"
#include "moetune/function_runner.h"
#include "moetune/host_device.h"
#include "worker/server.h"

namespace moetune::fuzz {
namespace {

constexpr int64_t kColumns = 4;
constexpr int64_t kMaxTokens = 256;
// Of one input: what a request may ask for takes seconds otherwise.
constexpr int kMostCalls = 2000;
constexpr size_t kMostBytes = size_t{16} << 20;

int calls_left = 0;

/// The host, with little memory.
class SmallDevice final : public Device {
 public:
  const DeviceProperties& properties() const override { return host_->properties(); }
  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    if (bytes > kMostBytes) return Error{ErrorCode::kOutOfMemory, "a small device"};
    return host_->allocate(bytes);
  }
  Status upload(void* to, const void* from, size_t bytes) override {
    return host_->upload(to, from, bytes);
  }
  Status download(void* to, const void* from, size_t bytes) override {
    return host_->download(to, from, bytes);
  }
  Status fill(void* to, uint8_t byte, size_t bytes) override {
    return host_->fill(to, byte, bytes);
  }
  Status run(const DeviceCall& call) override { return host_->run(call); }
  Result<std::unique_ptr<TimedSequence>> record(std::vector<DeviceCall> calls) override {
    return host_->record(std::move(calls));
  }
  DeviceState state() override { return {.clock_mhz = 1, .throttle_reasons = ~uint64_t{0}}; }
  size_t last_level_cache_bytes() const override { return 1; }
  size_t free_memory_bytes() override { return kMostBytes; }

 private:
  std::unique_ptr<Device> host_ = make_host_device({"cpu", "small", {{"cores", "1"}}, {}});
};

class OneChunk final : public WeightSource {
 public:
  int64_t chunks() const override { return 1; }
  Result<Tensors> chunk(int64_t) override { return Tensors{{"w", DataType::kF32, {1}, &weight_}}; }

 private:
  float weight_ = 2;
};

class DoublingBench final : public Workbench {
 public:
  explicit DoublingBench(Problem problem) : problem_(std::move(problem)) {}
  const Problem& problem() const override { return problem_; }
  WeightSource& weights(Scale) override { return weights_; }
  Result<Tensors> arguments(const Case& c, Scale, int) override {
    if (c.tokens > kMaxTokens) return Error{ErrorCode::kInvalidArgument, "too many tokens"};
    x_.assign(static_cast<size_t>(c.tokens * kColumns), 1.5f);
    return Tensors{{"x", DataType::kF32, {c.tokens, kColumns}, x_.data()},
                   {"y", DataType::kF32, {c.tokens, kColumns}, nullptr}};
  }
  int outputs() const override { return 1; }
  std::vector<int64_t> check_rows(const Case&, Scale, int) override { return {0}; }
  Verdict judge(const Case&, Scale, int, std::span<const int64_t>, const Tensors&) override {
    return {};
  }
  Work work(const Case&, Scale, int) override { return {}; }

 private:
  Problem problem_;
  OneChunk weights_;
  std::vector<float> x_;
};

// As a kernel does, it trusts sizes: what is none of this operator's must not come so far.
Status double_it(const Call& call, const Tactic&) {
  if (--calls_left < 0) return Error{ErrorCode::kRun, "enough"};
  const Tensors& arguments = *call.arguments;
  require(arguments.size() >= 1 && arguments.back().data != nullptr, "an output has its place");
  if (arguments.size() != 2 || arguments[0].bytes() != arguments[1].bytes() ||
      arguments[0].type != DataType::kF32 || arguments[1].type != DataType::kF32)
    return Error{ErrorCode::kInvalidArgument, "other arguments"};
  const auto* x = arguments[0].as<const float>();
  std::transform(x, x + arguments[0].values(), arguments[1].as<float>(),
                 [](float value) { return 2 * value; });
  return {};
}

FunctionRunner::Definition definition() {
  return {.name = "double.it",
          .space = Space({{"tile", {int64_t{1}, std::string("two")}, ""}}),
          .default_tactic =
              [](int64_t) {
                return Tactic({{"tile", int64_t{1}}});
              },
          .run = double_it,
          .workspace_bytes = [](const Tactic&,
                                int64_t tokens) { return static_cast<size_t>(tokens) * 16; },
          .is_deterministic = {}};
}

class DoublingPlace final : public worker::Place {
 public:
  explicit DoublingPlace(Problem problem) : bench_(std::move(problem)) {}
  Device& device() override { return device_; }
  Workbench& bench() override { return bench_; }
  std::vector<TunableRunner*> runners() override { return {&runner_}; }

 private:
  SmallDevice device_;
  DoublingBench bench_;
  FunctionRunner runner_{definition()};
};

worker::Registry make_registry() {
  worker::Registry registry;
  registry.add("double",
               [](const Problem& problem,
                  const worker::PlaceOptions& options) -> Result<std::unique_ptr<worker::Place>> {
                 if (options.contains("none"))
                   return Error{ErrorCode::kUnsupported, "no such place"};
                 return std::unique_ptr<worker::Place>(std::make_unique<DoublingPlace>(problem));
               });
  return registry;
}

void run(std::string_view input) {
  static const worker::Registry registry = make_registry();
  calls_left = kMostCalls;
  // A helper does not answer who has hung up. An empty line ends the conversation, too.
  auto [helper, parent] = said(input, "\n\n");
  worker::LineChannel channel(std::move(helper), std::chrono::milliseconds(1));
  const Status served = worker::Server(channel, registry).run();
  require(!served.ok() && !served.error().message.empty(), "the end has a reason");

  worker::LineChannel answers(std::move(parent));
  (void)answers.receive();
  while (true) {
    const auto line = answers.next();
    require(line.ok(), "a helper sends messages", line.ok() ? "" : line.error().message);
    if (!line->has_value()) return;
  }
}

const Register registered("protocol_helper", run);

}  // namespace
}  // namespace moetune::fuzz

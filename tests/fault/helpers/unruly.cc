// A helper program that runs fused_moe like moetune-worker, but for many candidates of the CPU: in
// GEMM 1, tiles of 3 or 6 tokens crash when they run, and tiles of 4 or 5 compute something wrong.
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/isolation.h"
#include "worker/server.h"

namespace {

using moetune::Call;
using moetune::Candidate;
using moetune::Device;
using moetune::Executable;
using moetune::PackedWeights;
using moetune::Result;
using moetune::Status;
using moetune::TunableRunner;
using moetune::WeightSource;
using moetune::Workbench;
using moetune::worker::Place;

class UnrulyExecutable final : public Executable {
 public:
  UnrulyExecutable(std::shared_ptr<Executable> inner, int64_t tile)
      : inner_(std::move(inner)), tile_(tile) {}
  Status run(const Call& call) override {
    if (tile_ % 3 == 0) ::raise(SIGSEGV);
    Status status = inner_->run(call);
    const moetune::Tensor& output = call.arguments->back();
    if (tile_ == 4 || tile_ == 5) std::memset(output.data, 0x41, output.bytes());
    return status;
  }
  Status run_stage(int stage, const Call& call) override { return inner_->run_stage(stage, call); }

 private:
  std::shared_ptr<Executable> inner_;
  int64_t tile_;
};

class UnrulyRunner final : public TunableRunner {
 public:
  explicit UnrulyRunner(TunableRunner& inner) : inner_(inner) {}
  std::string name() const override { return inner_.name(); }
  int version() const override { return inner_.version(); }
  const std::vector<moetune::Scheme>& schemes() const override { return inner_.schemes(); }
  Candidate default_candidate(int64_t tokens) const override {
    return inner_.default_candidate(tokens);
  }
  std::vector<std::string> layouts() const override { return inner_.layouts(); }
  std::string layout(const Candidate& candidate) const override { return inner_.layout(candidate); }
  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const override {
    return inner_.workspace_bytes(candidate, tokens);
  }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    auto compiled = inner_.compile(candidate, max_tokens);
    // Only candidates that are tried may be out: the default has to run.
    const bool is_default = candidate == inner_.default_candidate(max_tokens);
    const int64_t tile = candidate.stages.at(0).tactic.number("token_tile");
    if (!compiled.ok() || is_default) return compiled;
    return std::shared_ptr<Executable>(
        std::make_shared<UnrulyExecutable>(std::move(compiled).value(), tile));
  }
  Result<std::shared_ptr<PackedWeights>> pack(const std::string& layout,
                                              WeightSource& source) override {
    return inner_.pack(layout, source);
  }

 private:
  TunableRunner& inner_;
};

class UnrulyPlace final : public Place {
 public:
  explicit UnrulyPlace(std::unique_ptr<Place> inner) : inner_(std::move(inner)) {
    for (TunableRunner* runner : inner_->runners())
      runners_.push_back(std::make_unique<UnrulyRunner>(*runner));
  }
  Device& device() override { return inner_->device(); }
  Workbench& bench() override { return inner_->bench(); }
  std::vector<TunableRunner*> runners() override {
    std::vector<TunableRunner*> pointers;
    for (const auto& runner : runners_) pointers.push_back(runner.get());
    return pointers;
  }
  // What no machine can do, so that whoever shows it has asked here.
  Result<moetune::Ceilings> measure_ceilings(size_t read_bytes) override {
    return moetune::Ceilings{1e18, read_bytes, 1e21, "boasted", "boasted"};
  }

 private:
  std::unique_ptr<Place> inner_;
  std::vector<std::unique_ptr<UnrulyRunner>> runners_;
};

}  // namespace

int main(int argc, char** argv) {
  const moetune::worker::Registry real = moetune::make_worker_registry();
  moetune::worker::Registry registry;
  registry.add(
      "fused_moe", [&](const auto& problem, const auto& options) -> Result<std::unique_ptr<Place>> {
        auto place = real.make(problem, options);
        if (!place.ok()) return std::move(place).error();
        return std::unique_ptr<Place>(std::make_unique<UnrulyPlace>(std::move(place).value()));
      });
  return moetune::worker::run_program(argc, argv, registry);
}

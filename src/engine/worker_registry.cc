// fused_moe in a helper process: the same backend, bench and runners that the parent has.

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "engine/backend.h"
#include "engine/isolation.h"
#include "engine/limited_backend.h"
#include "engine/moe_session.h"
#include "engine/real_weights.h"
#include "ops/moe/moe_workbench.h"
#include "ops/moe/weights.h"

namespace moetune {
namespace {

using worker::PlaceOptions;

Result<uint64_t> read_number(const std::string& name, std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return Error{ErrorCode::kParse, fmt::format("option {}: '{}' is no number", name, text)};
}

/// `fallback` where the option is not given.
Result<uint64_t> number(const PlaceOptions& options, const std::string& name, uint64_t fallback) {
  const auto found = options.find(name);
  if (found == options.end()) return fallback;
  return read_number(name, found->second);
}

std::string word(const PlaceOptions& options, const std::string& name, const char* fallback) {
  const auto found = options.find(name);
  return found == options.end() ? fallback : found->second;
}

// The parent may have pinned the thread that started this process; here the same processors are
// free to use again.
Status use_processors(const std::string& list) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    MOETUNE_ASSIGN_OR_RETURN(
        const uint64_t processor,
        read_number("processors", std::string_view(list).substr(begin, end - begin)));
    if (processor < CPU_SETSIZE) CPU_SET(processor, &allowed);
    begin = end + 1;
  }
  // Where that is not allowed any more, the processors at hand have to do.
  if (CPU_COUNT(&allowed) > 0) ::sched_setaffinity(0, sizeof allowed, &allowed);
  return {};
}

Result<std::shared_ptr<Backend>> open_device(const PlaceOptions& options) {
  MOETUNE_RETURN_IF_ERROR(use_processors(word(options, "processors", "")));
  MOETUNE_ASSIGN_OR_RETURN(const uint64_t threads, number(options, "threads", 0));
  MOETUNE_ASSIGN_OR_RETURN(const uint64_t memory, number(options, "memory_bytes", 0));
  MOETUNE_ASSIGN_OR_RETURN(const uint64_t weights, number(options, "weight_bytes", 0));
  MOETUNE_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> backend,
      open_backend(word(options, "device", "auto"),
                   {.threads = static_cast<int>(threads), .pin_caller = true}));
  if (memory > 0) backend = limit_memory(std::move(backend), memory, weights);
  return std::shared_ptr<Backend>(std::move(backend));
}

class MoePlace final : public worker::Place {
 public:
  MoePlace(std::shared_ptr<Backend> backend, std::unique_ptr<Workbench> bench,
           std::vector<std::unique_ptr<TunableRunner>> runners, WeightFormat weights)
      : backend_(std::move(backend)),
        bench_(std::move(bench)),
        runners_(std::move(runners)),
        weights_(weights) {}

  Device& device() override { return backend_->device(); }
  Workbench& bench() override { return *bench_; }
  std::vector<TunableRunner*> runners() override {
    std::vector<TunableRunner*> pointers;
    for (const auto& runner : runners_) pointers.push_back(runner.get());
    return pointers;
  }
  Result<Ceilings> measure_ceilings(size_t read_bytes) override {
    return backend_->measure_ceilings(read_bytes, weights_);
  }

 private:
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Workbench> bench_;
  std::vector<std::unique_ptr<TunableRunner>> runners_;
  WeightFormat weights_;
};

// The checkpoint that a layer's weights come from, where the parent names one.
Result<std::optional<RealWeights>> real_weights(const PlaceOptions& options) {
  const std::string model = word(options, "model", "");
  if (model.empty()) return std::optional<RealWeights>();
  MOETUNE_ASSIGN_OR_RETURN(const uint64_t layer, number(options, "layer", 0));
  MOETUNE_ASSIGN_OR_RETURN(const uint64_t rank, number(options, "rank", 0));
  return std::optional<RealWeights>(
      {model, static_cast<int64_t>(layer), static_cast<int>(std::min<uint64_t>(rank, INT_MAX))});
}

// Backends by what they were asked for: all problems of a device share one.
using OpenDevices = std::map<PlaceOptions, std::shared_ptr<Backend>>;

Result<std::unique_ptr<worker::Place>> make_moe_place(OpenDevices& devices, const Problem& problem,
                                                      PlaceOptions options) {
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec spec, moe_spec_of(problem));
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  MOETUNE_ASSIGN_OR_RETURN(const uint64_t seed, number(options, "seed", 0));
  const bool is_exact = word(options, "data", "realistic") == "exact";
  MOETUNE_ASSIGN_OR_RETURN(const std::optional<RealWeights> weights, real_weights(options));
  for (const char* option : {"seed", "data", "model", "layer", "rank"}) options.erase(option);
  std::shared_ptr<Backend>& backend = devices[options];
  if (!backend) {
    MOETUNE_ASSIGN_OR_RETURN(backend, open_device(options));
  }
  MoeWorkbenchOptions how = bench_options(*backend, seed);
  how.kind = is_exact ? DataKind::kExact : DataKind::kRealistic;
  std::unique_ptr<WeightSource> own;
  if (weights && !is_exact) {
    MOETUNE_ASSIGN_OR_RETURN(own, open_weights(*weights, spec));
  }
  MOETUNE_ASSIGN_OR_RETURN(auto bench, make_moe_workbench(spec, how, std::move(own)));
  MOETUNE_ASSIGN_OR_RETURN(auto runners, backend->make_runners(spec));
  return std::unique_ptr<worker::Place>(
      std::make_unique<MoePlace>(backend, std::move(bench), std::move(runners), spec.weights));
}

}  // namespace

worker::Registry make_worker_registry() {
  worker::Registry registry;
  registry.add("fused_moe", [devices = std::make_shared<OpenDevices>()](
                                const Problem& problem, const PlaceOptions& options) {
    return make_moe_place(*devices, problem, options);
  });
  return registry;
}

}  // namespace moetune

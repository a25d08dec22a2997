// What the start of a serving program takes: from a specification and weights to a layer that is
// ready to run, with the plan of this machine's tuned configuration.
//
//   bench_start --model glm-5 --weights nvfp4 --tp 8 --device cuda:0 --config tuned.json
//
// Weights are random, and made as they are asked for: making them is timed by itself and counts as
// what a checkpoint's reader would take.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "moetune/cpp.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Adds up what the source behind it takes.
class TimedSource final : public moetune::WeightSource {
 public:
  explicit TimedSource(moetune::WeightSource& source) : source_(source) {}
  int64_t chunks() const override { return source_.chunks(); }
  moetune::Result<moetune::Tensors> chunk(int64_t index) override {
    const Clock::time_point start = Clock::now();
    auto tensors = source_.chunk(index);
    seconds += seconds_since(start);
    return tensors;
  }
  double seconds = 0;

 private:
  moetune::WeightSource& source_;
};

int fail(const moetune::Error& error) {
  fmt::print(stderr, "error: {}\n", error.message);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "qwen3-30b-a3b";
  std::string weights = "nvfp4";
  std::string device = "auto";
  std::string config;
  int tp = 1;
  int64_t max_tokens = 8192;
  CLI::App app("Times the start of a program that serves a layer");
  app.add_option("--model", model);
  app.add_option("--weights", weights);
  app.add_option("--tp", tp);
  app.add_option("--device", device);
  app.add_option("--config", config);
  app.add_option("--max-tokens", max_tokens);
  CLI11_PARSE(app, argc, argv);

  const auto spec = moetune::layer_spec(model, {.weights = weights, .tp = tp});
  if (!spec.ok()) return fail(spec.error());
  const auto source = moetune::random_weights(*spec, 1);
  if (!source.ok()) return fail(source.error());
  TimedSource timed(**source);
  const std::vector<float> router_bias(
      spec->router.selection_bias ? static_cast<size_t>(spec->global_experts) : 0);
  const Clock::time_point start = Clock::now();
  const auto layer = moetune::FusedMoe::create(
      *spec, timed,
      {.device = device, .max_tokens = max_tokens, .config = config, .router_bias = router_bias});
  const double whole = seconds_since(start);
  if (!layer.ok()) return fail(layer.error());
  fmt::print("ready after {:.2f} s, of which {:.2f} s went to making random weights\n", whole,
             timed.seconds);
  return 0;
}

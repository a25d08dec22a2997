// How long a whole model's layers take from the files of its folder to packed weights, ready to
// run: FusedMoe::create() for one layer after the other, each given back before the next.
//
//   bench_pack FOLDER [--layers 48] [--device cpu] [--tp N] [--config FILE]
//
// Layers past the folder's last one begin with its first again, so that a part of a model stands
// for all of it. Prints seconds, and what was read of the files beside the read ceiling and beside
// what the machine takes at the least: reading as much, and writing it to memory that nobody has
// touched, whose pages the system has to clear first. Files that were read before are in the page
// cache: read them once for the disk's share.
#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "engine/backend.h"
#include "model/model_spec.h"
#include "moetune/checkpoint.h"
#include "moetune/fused_moe.h"

namespace moetune {
namespace {

struct Options {
  std::string folder;
  int layers = 0;
  std::string device = "cpu";
  int tp = 1;
  std::string config;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds to write that much to fresh memory, by as many threads as kernels use: the least of some
// tries.
double first_touch_s(size_t bytes, size_t threads) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t each = bytes / threads / kHugePage * kHugePage + kHugePage;
  double least_s = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < 5; ++attempt) {
    void* memory =
        ::mmap(nullptr, each * threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    (void)::madvise(memory, each * threads, MADV_HUGEPAGE);
    const auto start = Clock::now();
    {
      std::vector<std::jthread> writers;
      for (size_t i = 0; i < threads; ++i)
        writers.emplace_back(
            [=] { std::memset(static_cast<std::byte*>(memory) + i * each, 1, each); });
    }
    least_s = std::min(least_s, seconds_since(start));
    ::munmap(memory, each * threads);
  }
  return least_s;
}

Status run(const Options& options) {
  MOETUNE_ASSIGN_OR_RETURN(const ModelSpec model, load_model(options.folder));
  MOETUNE_ASSIGN_OR_RETURN(const FusedMoeSpec spec,
                           layer_spec(options.folder, LayerOptions{.tp = options.tp}));
  const int64_t there = model.moe_layers;
  const int64_t wanted = options.layers > 0 ? options.layers : there;
  FusedMoeOptions how{.device = options.device, .max_tokens = 64, .config = options.config};
  // As many as there are experts, of zeros: what a bias is does not change how long it takes.
  if (spec.router.selection_bias) how.router_bias.resize(static_cast<size_t>(spec.global_experts));
  const double bytes = static_cast<double>(expert_weight_bytes(spec) * spec.experts);

  double create_s = 0, slowest_s = 0;
  for (int64_t i = 0; i < wanted; ++i) {
    const auto start = Clock::now();
    const int64_t layer = model.dense_first + i % there;
    MOETUNE_ASSIGN_OR_RETURN(const auto weights, checkpoint_weights(options.folder, layer, spec));
    MOETUNE_ASSIGN_OR_RETURN(const auto created, FusedMoe::create(spec, *weights, how));
    const double seconds = seconds_since(start);
    create_s += seconds;
    slowest_s = std::max(slowest_s, seconds);
  }
  MOETUNE_ASSIGN_OR_RETURN(const auto backend, open_backend(options.device, {}));
  MOETUNE_ASSIGN_OR_RETURN(const Ceilings ceilings,
                           backend->measure_ceilings(size_t{256} << 20, spec.weights));
  const double rate = bytes * static_cast<double>(wanted) / create_s;
  fmt::print(
      "{} in {}: {} layers of {:.0f} MiB in {:.2f} s, {:.3f} s a layer, the slowest {:.3f} s\n",
      model.name, to_string(spec.weights), wanted, bytes / (1 << 20), create_s,
      create_s / static_cast<double>(wanted), slowest_s);
  fmt::print(
      "read {:.2f} GB/s of weights and wrote as much: together {:.0f} % of {:.1f} GB/s ({})\n",
      rate / 1e9, 100 * 2 * rate / ceilings.read_bytes_per_s, ceilings.read_bytes_per_s / 1e9,
      ceilings.read_name);
  const size_t threads = std::max<size_t>(1, backend->processors().size());
  const double least_s =
      first_touch_s(static_cast<size_t>(bytes), threads) + bytes / ceilings.read_bytes_per_s;
  fmt::print(
      "read and written once to fresh memory, a layer takes {:.3f} s: {:.0f} % of that speed\n",
      least_s, 100 * least_s / (create_s / static_cast<double>(wanted)));
  return {};
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  moetune::Options options;
  CLI::App app("Times packing a model's layers from its folder");
  app.add_option("folder", options.folder)->required();
  app.add_option("--layers", options.layers);
  app.add_option("--device", options.device);
  app.add_option("--tp", options.tp);
  app.add_option("--config", options.config);
  CLI11_PARSE(app, argc, argv);
  if (const moetune::Status status = moetune::run(options); !status.ok()) {
    fmt::print(stderr, "error: {}\n", status.error().message);
    return 1;
  }
  return 0;
}

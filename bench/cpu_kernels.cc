// Times the CPU layer against this machine's ceilings, and shows what each parameter of a tactic is
// worth.
//
//   cpu_kernels [--model qwen3|gpt-oss|mixtral-tp8|glm5-tp8] [--weights FORMAT]
//               [--tokens 1,4,64,512] [--workload uniform|zipf] [--threads N] [--experts N]
//               [--search]
//
// Without --search: one line per number of tokens with the default tactic. With it: each stage's
// parameters are improved one after the other from the default on, and the loss of every value
// against the best is reported.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cpu/ceilings.h"
#include "cpu/isa.h"
#include "cpu/layer.h"
#include "cpu/topology.h"
#include "ops/moe/weights.h"

namespace moetune::cpu {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "qwen3";
  std::string weights = "nvfp4";
  std::string workload = "uniform";
  std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  int threads = 0;
  int64_t experts = 0;
  bool search = false;
};

FusedMoeSpec spec_of(const Options& options) {
  FusedMoeSpec spec;
  spec.hidden = 2048, spec.intermediate = 768, spec.experts = 128, spec.top_k = 8;
  if (options.model == "gpt-oss") {
    spec.hidden = 2880, spec.intermediate = 2880, spec.experts = 32, spec.top_k = 4;
    spec.activation = Activation::kSwiGluClamped, spec.bias = true;
  }
  if (options.model == "mixtral-tp8")
    spec.hidden = 4096, spec.intermediate = 1792, spec.experts = 8, spec.top_k = 2;
  if (options.model == "glm5-tp8")
    spec.hidden = 6144, spec.intermediate = 256, spec.experts = 256, spec.top_k = 8;
  if (options.experts != 0) spec.experts = options.experts;
  spec.global_experts = spec.experts;
  spec.weights = parse_weight_format(options.weights).value();
  return spec;
}

// Every expert gets the same random weights, each in its own memory.
PanelWeights random_weights(const FusedMoeSpec& spec, ThreadPool& pool) {
  const auto source = make_random_weights(spec, DataKind::kRealistic, 1).value();
  const Tensors expert = source->chunk(0).value();
  PanelWeights packed = PanelWeights::allocate(spec).value();
  for (int64_t e = 0; e < spec.experts; ++e) (void)packed.pack(e, expert, pool);
  return packed;
}

// Routing samples of k distinct experts per token.
class Router {
 public:
  Router(const FusedMoeSpec& spec, const std::string& workload) : spec_(spec), random_(7) {
    for (int64_t e = 0; e < spec.experts; ++e)
      popularity_.push_back(workload == "zipf" ? std::pow(static_cast<double>(e + 1), -1.2) : 1.0);
    std::shuffle(popularity_.begin(), popularity_.end(), random_);
  }
  // The k largest of log(popularity) + Gumbel noise: sampling without replacement.
  std::vector<int32_t> ids(int64_t tokens) {
    std::vector<int32_t> all;
    std::uniform_real_distribution<double> uniform(1e-12, 1);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<std::pair<double, int32_t>> keys;
      for (size_t e = 0; e < popularity_.size(); ++e)
        keys.emplace_back(-std::log(popularity_[e]) + std::log(-std::log(uniform(random_))),
                          static_cast<int32_t>(e));
      std::partial_sort(keys.begin(), keys.begin() + spec_.top_k, keys.end());
      for (int i = 0; i < spec_.top_k; ++i) all.push_back(keys[static_cast<size_t>(i)].second);
    }
    return all;
  }

 private:
  FusedMoeSpec spec_;
  std::mt19937 random_;
  std::vector<double> popularity_;
};

struct Bench {
  FusedMoeSpec spec;
  const KernelTable& kernels;
  ThreadPool& pool;
  const PanelWeights& weights;
  std::vector<std::vector<int32_t>> routings;
  std::vector<uint16_t> hidden;
  std::vector<float> slot_weights;
  std::vector<uint16_t> output;
  int64_t tokens = 0;
  Buffer workspace = {};

  void prepare(Router& router, int64_t count) {
    tokens = count;
    routings.clear();
    const int samples = count <= 16 ? 16 : 4;
    for (int i = 0; i < samples; ++i) routings.push_back(router.ids(count));
    std::mt19937 random(3);
    hidden.resize(static_cast<size_t>(count * spec.hidden));
    for (uint16_t& value : hidden) value = static_cast<uint16_t>(0x3E00 | (random() & 0x80FF));
    slot_weights.assign(static_cast<size_t>(count * spec.top_k), 0.125f);
    output.resize(hidden.size());
  }

  double run_once(const LayerTactic& tactic, Part part, size_t sample) {
    const auto bytes =
        static_cast<size_t>(workspace_bytes(spec, tokens, tactic, kernels, pool.size()));
    if (workspace.bytes() < bytes) workspace = Buffer::allocate(bytes).value();
    const LayerInputs inputs{.tokens = tokens,
                             .hidden = hidden.data(),
                             .ids = routings[sample % routings.size()].data(),
                             .weights = slot_weights.data(),
                             .output = output.data()};
    const Clock::time_point before = Clock::now();
    (void)run_layer(weights, inputs, tactic, kernels, pool, workspace.data(), part);
    return std::chrono::duration<double, std::micro>(Clock::now() - before).count();
  }

  // The median of a round over all routing samples, the least of several rounds.
  double time_us(const LayerTactic& tactic, Part part, double seconds) {
    double best = INFINITY;
    const Clock::time_point start = Clock::now();
    (void)run_once(tactic, part, 0);
    for (int round = 0;
         round < 2 || std::chrono::duration<double>(Clock::now() - start).count() < seconds;
         ++round) {
      std::vector<double> times;
      for (size_t i = 0; i < routings.size(); ++i) times.push_back(run_once(tactic, part, i));
      std::sort(times.begin(), times.end());
      best = std::min(best, times[times.size() / 2]);
    }
    return best;
  }

  double touched_experts() const {
    double sum = 0;
    for (std::vector<int32_t> ids : routings) {
      std::sort(ids.begin(), ids.end());
      sum += static_cast<double>(std::unique(ids.begin(), ids.end()) - ids.begin());
    }
    return sum / static_cast<double>(routings.size());
  }
};

struct Ceilings {
  double bytes_per_s;
  double operations_per_s;
};

void report_default(Bench& bench, const Topology& topology, const Ceilings& ceilings) {
  const LayerTactic tactic =
      default_tactic(bench.spec, bench.tokens, bench.kernels, topology, bench.pool.size());
  const double us = bench.time_us(tactic, Part::kAll, 0.5);
  const double gemm1 = bench.time_us(tactic, Part::kGemm1, 0.2);
  const double gemm2 = bench.time_us(tactic, Part::kGemm2, 0.2);
  const double bytes =
      bench.touched_experts() * static_cast<double>(expert_weight_bytes(bench.spec));
  const double operations = 2.0 * static_cast<double>(bench.tokens * bench.spec.top_k) * 3 *
                            static_cast<double>(bench.spec.hidden * bench.spec.intermediate);
  fmt::print(
      "T={:5} {:10.1f} us (gemm1 {:.1f}, gemm2 {:.1f})  {:6.2f} GB/s = {:.2f} of read   {:7.1f} "
      "GFLOP/s = {:.2f} "
      "of multiply  {} | {}\n",
      bench.tokens, us, gemm1, gemm2, bytes / us * 1e-3, bytes / us * 1e6 / ceilings.bytes_per_s,
      operations / us * 1e-3, operations / us * 1e6 / ceilings.operations_per_s,
      to_string(tactic.gemm1), to_string(tactic.gemm2));
  std::fflush(stdout);
}

// ---- Search ----

struct Dimension {
  const char* name;
  std::vector<int> values;
  void (*set)(StageTactic&, int);
  int (*get)(const StageTactic&);
};

std::vector<Dimension> dimensions(const KernelTable& kernels, WeightFormat format) {
  const FormatKernels& own = format_kernels(kernels, format);
  std::vector<int> tiles;
  for (const int tile : {1, 2, 3, 4, 5, 6, 8, 10, 12})
    if (tile <= kernels.max_tile) tiles.push_back(tile);
  std::vector<int> feeds = {0};
  if (own.stage != nullptr) feeds.push_back(1);
  return {
      {"feed", feeds, [](StageTactic& t, int v) { t.feed = static_cast<Feed>(v); },
       [](const StageTactic& t) { return static_cast<int>(t.feed); }},
      {"token_tile", tiles, [](StageTactic& t, int v) { t.token_tile = v; },
       [](const StageTactic& t) { return t.token_tile; }},
      {"k_block",
       {0, 128, 256, 512, 1024},
       [](StageTactic& t, int v) { t.k_block = v; },
       [](const StageTactic& t) { return t.k_block; }},
      {"panels_per_task",
       {1, 2, 4, 8, 16},
       [](StageTactic& t, int v) { t.panels_per_task = v; },
       [](const StageTactic& t) { return t.panels_per_task; }},
      {"prefetch_bytes",
       {0, 512, 1024, 2048, 4096},
       [](StageTactic& t, int v) { t.prefetch_bytes = v; },
       [](const StageTactic& t) { return t.prefetch_bytes; }},
  };
}

// losses[stage + dimension][value]: of each case, time with that value over the best known, the
// rest as in the best.
using Losses = std::map<std::string, std::map<int, std::vector<double>>>;

void search_stage(Bench& bench, const LayerTactic& start, Part part, Losses& losses) {
  const bool first = part == Part::kGemm1;
  const std::vector<Dimension> all = dimensions(bench.kernels, bench.spec.weights);
  const double seconds = bench.tokens <= 64 ? 0.05 : 0.0;
  (void)bench.run_once(start, Part::kAll, 0);
  std::map<std::string, double> known;
  const auto time = [&](const StageTactic& stage) {
    LayerTactic tactic = start;
    (first ? tactic.gemm1 : tactic.gemm2) = stage;
    if (!validate(tactic, bench.kernels, bench.spec.weights).ok()) return double{INFINITY};
    auto [at, is_new] = known.emplace(to_string(stage), 0);
    if (is_new) at->second = bench.time_us(tactic, part, seconds);
    return at->second;
  };
  StageTactic best = first ? start.gemm1 : start.gemm2;
  const double untuned = time(best);
  for (int sweep = 0; sweep < 2; ++sweep)
    for (const Dimension& dimension : all) {
      StageTactic trial = best;
      for (const int value : dimension.values) {
        dimension.set(trial, value);
        if (time(trial) < time(best)) best = trial;
      }
    }
  const double least = time(best);
  for (const Dimension& dimension : all) {
    StageTactic trial = best;
    for (const int value : dimension.values) {
      dimension.set(trial, value);
      const double us = time(trial);
      if (std::isfinite(us))
        losses[fmt::format("{} {}", first ? "gemm1" : "gemm2", dimension.name)][value].push_back(
            us / least);
    }
  }
  fmt::print("T={:5} {} default {:9.1f} us, best {:9.1f} us (regret {:5.1f} %)  {}  ->  {}\n",
             bench.tokens, first ? "gemm1" : "gemm2", untuned, least, 100 * (untuned / least - 1),
             to_string(first ? start.gemm1 : start.gemm2), to_string(best));
  std::fflush(stdout);
}

void print_losses(const Losses& losses) {
  fmt::print("\nper value: cases won (within 1 % of the best) of all, median and largest loss\n");
  for (const auto& [name, values] : losses) {
    fmt::print("{}\n", name);
    for (const auto& [value, ratios] : values) {
      std::vector<double> sorted = ratios;
      std::sort(sorted.begin(), sorted.end());
      const auto won =
          std::count_if(sorted.begin(), sorted.end(), [](double ratio) { return ratio < 1.01; });
      fmt::print("  {:5}: {:3} of {:3}   {:6.1f} %  {:6.1f} %\n", value, won, sorted.size(),
                 100 * (sorted[sorted.size() / 2] - 1), 100 * (sorted.back() - 1));
    }
  }
}

int run(const Options& options) {
  const Result<Isa> isa = choose_isa();
  if (!isa.ok()) return fmt::print(stderr, "{}\n", isa.error().message), 1;
  const KernelTable& table = kernels(*isa);
  const Topology topology = read_topology();
  ThreadPool pool(
      topology.placement(options.threads != 0 ? options.threads : topology.default_threads()));
  const ScopedAffinity pin(pool.cpus()[0]);
  const FusedMoeSpec spec = spec_of(options);
  const PanelWeights weights = random_weights(spec, pool);
  const size_t cold = std::max<size_t>(3 * topology.l3_bytes, size_t{64} << 20);
  const Ceilings ceilings{read_bandwidth(cold, cold, table, pool).value(),
                          multiply_rate(format_kernels(table, spec.weights), pool)};
  fmt::print("{}, {} threads, {}; {} {} {}; read {:.2f} GB/s, multiply {:.1f} GFLOP/s\n",
             topology.name, pool.size(), table.name, options.model, options.weights,
             options.workload, ceilings.bytes_per_s * 1e-9, ceilings.operations_per_s * 1e-9);
  Router router(spec, options.workload);
  Bench bench{spec, table, pool, weights, {}, {}, {}, {}};
  Losses losses;
  for (const int64_t tokens : options.tokens) {
    bench.prepare(router, tokens);
    if (!options.search) {
      report_default(bench, topology, ceilings);
      continue;
    }
    const LayerTactic start = default_tactic(spec, tokens, table, topology, pool.size());
    search_stage(bench, start, Part::kGemm1, losses);
    search_stage(bench, start, Part::kGemm2, losses);
  }
  if (options.search) print_losses(losses);
  return 0;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--search") {
      options.search = true;
      continue;
    }
    if (++i == argc) return false;
    const std::string value = argv[i];
    if (flag == "--model") {
      options.model = value;
    } else if (flag == "--weights") {
      if (!parse_weight_format(value)) return false;
      options.weights = value;
    } else if (flag == "--workload") {
      options.workload = value;
    } else if (flag == "--threads") {
      options.threads = std::stoi(value);
    } else if (flag == "--experts") {
      options.experts = std::stoi(value);
    } else if (flag == "--tokens") {
      options.tokens.clear();
      for (size_t at = 0; at < value.size();
           at = value.find(',', at) == std::string::npos ? value.size() : value.find(',', at) + 1)
        options.tokens.push_back(std::stoll(value.substr(at)));
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace moetune::cpu

int main(int argc, char** argv) {
  moetune::cpu::Options options;
  if (!moetune::cpu::parse(argc, argv, options)) {
    fmt::print(
        stderr,
        "usage: cpu_kernels [--model qwen3|gpt-oss|mixtral-tp8|glm5-tp8] [--weights FORMAT]\n"
        "                   [--tokens 1,4,64] [--workload uniform|zipf] [--threads N] [--experts "
        "N]\n"
        "                   [--search]\n");
    return 2;
  }
  return moetune::cpu::run(options);
}

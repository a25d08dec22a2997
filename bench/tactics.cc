// Times every tactic of a layer's default runner: each stage's whole space, the other stages held
// at the scheme's base, at every size and workload asked for. What it writes is data for work on
// search: how good is a way of choosing that has not seen all of this?
//
//   bench_tactics --model glm-5 --weights nvfp4 --tp 8 --device cuda:0 --tokens 1,64,4096
//                 --workload uniform,zipf:1.2 --seconds 300 --out glm-5.jsonl
//
// One JSON object a line: first the layer and the device, then a line per stage and tactic with its
// samples in microseconds per call, of that stage alone. Lines with "stage": "" are the default as
// a whole, measured between the others so that a drift shows. Ends early, in the middle of a size,
// when the time is up; a last line says whether it came to the end. --done FILE, as often as there
// are files, leaves out what an earlier run has measured. --host NAME takes another engine's
// kernels, as `moetune tune --host` does; bench/plan_regret.py then says what a plan loses to the
// best of them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status_macros.h"
#include "engine/backend.h"
#include "engine/moe_session.h"
#include "model/model_spec.h"
#include "tuner/tune_meter.h"
#include "tuner/tune_space.h"

namespace moetune {
namespace {

struct Options {
  std::string model = "qwen3-30b-a3b";
  std::string weights = "bf16";
  std::string activations = "a16";
  std::string host;
  int tp = 1;
  std::string device = "auto";
  std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  std::vector<std::string> workloads = {"uniform"};
  double seconds = 300;
  std::vector<std::string> done;
  std::string out = "/dev/stdout";
};

constexpr int kSamples = 3;
constexpr size_t kDefaultEvery = 64;  // Tactics between two samples of the default.
constexpr size_t kAhead = 128;

class Measurement {
 public:
  Measurement(const Options& options, Backend& backend, MoeSession& session)
      : options_(options),
        session_(session),
        runner_(session.default_runner()),
        space_(session.runners(), Buckets::from(options.tokens).value(), true),
        file_(options.out) {
    file_ << print_json_line({{"model", options.model},
                              {"weights", options.weights},
                              {"tp", options.tp},
                              {"problem", session.problem().key()},
                              {"device", backend.device().properties().name},
                              {"device_key", backend.device().properties().key()},
                              {"runner", runner_.name()},
                              {"runner_version", runner_.version()}})
          << '\n';
  }

  Status run() {
    for (const std::string& path : options_.done) MOETUNE_RETURN_IF_ERROR(read_done(path));
    const std::string layout = runner_.layouts().front();
    const WeightLayout one{runner_.name(), layout};
    MOETUNE_RETURN_IF_ERROR(session_.executor().load({&one, 1}, Scale::kFull));
    for (int64_t tokens : options_.tokens) {
      for (const std::string& workload : options_.workloads)
        MOETUNE_RETURN_IF_ERROR(measure({tokens, workload, 0}));
    }
    file_ << print_json_line({{"complete", !over()}, {"lines", lines_}}) << '\n';
    fmt::print(stderr, "{} lines, {}\n", lines_, over() ? "ended by time" : "complete");
    return file_.flush() ? Status() : Error{ErrorCode::kIo, "cannot write " + options_.out};
  }

 private:
  bool over() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() >
           options_.seconds;
  }

  static std::string key_of(const Case& what, std::string_view scheme, std::string_view stage,
                            std::string_view tactic) {
    return fmt::format("{} {} {} {} {}", what.tokens, what.workload, scheme, stage, tactic);
  }

  // Lines of another model or format than ours would be taken for our own: that is the caller's
  // affair.
  Status read_done(const std::string& path) {
    std::ifstream file(path);
    if (!file) return Error{ErrorCode::kIo, "cannot read " + path};
    for (std::string text; std::getline(file, text);) {
      const Result<Json> line = parse_json(text, path);
      if (!line.ok() || !line->contains("tactic") || !line->contains("us")) continue;
      done_.insert(key_of({(*line)["tokens"], (*line)["workload"], 0},
                          (*line)["scheme"].get<std::string>(), (*line)["stage"].get<std::string>(),
                          (*line)["tactic"].get<std::string>()));
    }
    return {};
  }

  Status measure(const Case& what) {
    if (over()) return {};
    const Candidate fallback = runner_.default_candidate(what.tokens);
    Executor& executor = session_.executor();
    MOETUNE_RETURN_IF_ERROR(executor.select(what, 1));
    const Candidate* first[] = {&fallback};
    MOETUNE_ASSIGN_OR_RETURN(const auto once, executor.measure(first, -1, 1));
    setting_ = setting_for(MeasurementPolicy{}, once[0].us);
    MOETUNE_RETURN_IF_ERROR(executor.select(what, setting_.routings));
    const LayoutGroup& group = space_.groups().front();
    for (const Arm& arm : space_.arms(group, what.tokens)) {
      for (size_t stage = 0; stage < arm.scheme->stages.size(); ++stage) {
        const std::string& name = arm.scheme->stages[stage].name;
        auto candidates = space_.variations(arm, group, stage, arm.base, what.tokens);
        std::erase_if(candidates, [&](const Candidate& candidate) {
          return done_.contains(
              key_of(what, candidate.scheme, name, candidate.stages[stage].tactic.text()));
        });
        for (size_t i = 0; i < candidates.size() && !over(); ++i) {
          if (i % kAhead == 0)
            executor.prefetch(
                std::span(candidates).subspan(i, std::min(2 * kAhead, candidates.size() - i)),
                what.tokens);
          if (i % kDefaultEvery == 0) write(what, fallback, -1, "");
          write(what, candidates[i], static_cast<int>(stage), name);
        }
      }
    }
    return {};
  }

  void write(const Case& what, const Candidate& candidate, int stage, const std::string& name) {
    const Candidate* order[] = {&candidate, &candidate, &candidate};
    static_assert(std::size(decltype(order){}) == kSamples);
    const auto samples = session_.executor().measure(order, stage, setting_.calls);
    Json line = {
        {"tokens", what.tokens},
        {"workload", what.workload},
        {"scheme", candidate.scheme},
        {"stage", name},
        {"tactic", stage < 0 ? candidate.text()
                             : candidate.stages[static_cast<size_t>(stage)].tactic.text()}};
    if (samples.ok()) {
      Json us = Json::array();
      for (const Sample& sample : *samples) us.push_back(std::round(sample.us * 100) / 100);
      line["us"] = std::move(us);
    } else {
      line["error"] = samples.error().message;
    }
    file_ << print_json_line(line) << '\n';
    ++lines_;
  }

  const Options& options_;
  MoeSession& session_;
  TunableRunner& runner_;
  CandidateSpace space_;
  std::set<std::string> done_;
  std::ofstream file_;
  Setting setting_;
  int64_t lines_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Status run(const Options& options) {
  MOETUNE_ASSIGN_OR_RETURN(const ModelSpec model, load_model(options.model));
  const WeightFormat format = parse_weight_format(options.weights).value_or(WeightFormat::kBf16);
  MOETUNE_ASSIGN_OR_RETURN(FusedMoeSpec spec, layer_spec(model, format, {.tp = options.tp}));
  spec.activations = parse_activation_format(options.activations).value_or(ActivationFormat::kA16);
  MOETUNE_ASSIGN_OR_RETURN(const auto backend, open_backend(options.device, {.pin_caller = true}));
  std::vector<KernelHost> hosts;
  if (!options.host.empty()) {
    spec = hosted_spec(spec);
    MOETUNE_ASSIGN_OR_RETURN(const auto choices, parse_hosts(options.host));
    MOETUNE_ASSIGN_OR_RETURN(
        KernelHost host, start_kernel_host(choices.front(), *backend, options.device, spec, {}));
    hosts.push_back(std::move(host));
  }
  MOETUNE_ASSIGN_OR_RETURN(const auto session,
                           MoeSession::create(*backend, spec, 0, {}, {}, hosts));
  return Measurement(options, *backend, *session).run();
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  moetune::Options options;
  CLI::App app("Times every tactic of a layer, for work on search");
  app.add_option("--model", options.model);
  app.add_option("--weights", options.weights)
      ->check(CLI::IsMember({"bf16", "fp16", "fp8", "fp8-block", "nvfp4", "mxfp4"}));
  app.add_option("--activations", options.activations)
      ->check(CLI::IsMember({"a16", "fp8-block", "fp8"}));
  app.add_option("--host", options.host);
  app.add_option("--tp", options.tp);
  app.add_option("--device", options.device);
  app.add_option("--tokens", options.tokens)->delimiter(',');
  app.add_option("--workload", options.workloads)->delimiter(',');
  app.add_option("--seconds", options.seconds);
  app.add_option("--done", options.done)->take_all();
  app.add_option("--out", options.out);
  CLI11_PARSE(app, argc, argv);
  if (const moetune::Status status = moetune::run(options); !status.ok()) {
    fmt::print(stderr, "error: {}\n", status.error().message);
    return 1;
  }
  return 0;
}

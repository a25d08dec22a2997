// moetune compare: kernels of several hosts at the same sizes, each with its default and with what
// tuning chose of it, in one run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/statistics.h"
#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/compare_record.h"
#include "cli/describe.h"
#include "cli/host_flags.h"
#include "cli/interrupts.h"
#include "cli/job.h"
#include "cli/progress.h"
#include "cli/save.h"
#include "cli/values.h"
#include "cli/version.h"
#include "tuner/configuration.h"
#include "tuner/tune_meter.h"

namespace moetune::cli {
namespace {

constexpr int kLeastRounds = 5;
constexpr int kMostRounds = 100;

/// One host's kernels, and the plan that was made of them alone.
struct Entrant {
  std::string host;
  std::vector<TunableRunner*> runners;
  std::unique_ptr<AutoTuner> tuner;
  bool has_plan = false;
};

std::vector<Entrant> entrants_of(const Job& job) {
  std::vector<Entrant> entrants;
  for (const KernelHost& host : job.hosts) {
    Entrant& entrant = entrants.emplace_back();
    entrant.host = host.choice.name;
    for (TunableRunner* runner : job.session->runners()) {
      const bool is_hosted = !runner->has_exact_check();
      const bool is_its = std::any_of(host.kernels.runners.begin(), host.kernels.runners.end(),
                                      [&](const auto& own) { return own.get() == runner; });
      if (host.choice.is_own() ? !is_hosted : is_its) entrant.runners.push_back(runner);
    }
  }
  return entrants;
}

/// Puts the plan of a file in force where it is of this layer and of this host's runners. False
/// where it is not.
Result<bool> load_entrant(const Job& job, Entrant& entrant, const std::string& path,
                          Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const TunedConfiguration file, TunedConfiguration::load(path));
  const Plan* plan = file.find(job.session->problem());
  const bool is_its = plan != nullptr && std::any_of(entrant.runners.begin(), entrant.runners.end(),
                                                     [&](const TunableRunner* runner) {
                                                       return runner->name() == plan->runner;
                                                     });
  if (!is_its) return false;
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<std::string> differences,
                           entrant.tuner->load(file, AutoTuner::Source::kUser));
  for (const std::string& words : differences) output.note(fmt::format("{}: {}", path, words));
  for (const std::string& words : entrant.tuner->validate(job.session->problem(), entrant.runners))
    output.note(fmt::format("{}: {}", path, words));
  entrant.has_plan = true;
  return true;
}

class Comparison {
 public:
  Comparison(Job& job, std::vector<Entrant>& entrants, uint64_t seed, std::stop_token stop)
      : job_(job), entrants_(entrants), seed_(seed), stop_(std::move(stop)) {
    for (const Entrant& entrant : entrants_) {
      record_.contestants.push_back({entrant.host, false});
      if (entrant.has_plan) record_.contestants.push_back({entrant.host, true});
    }
  }

  Result<CompareRecord> run(const std::vector<int64_t>& tokens,
                            const std::vector<std::string>& workloads, double budget_s) {
    Progress progress;  // Silent again when this returns: results are printed next.
    progress.show({"packing weights", 0, -1});
    MOETUNE_RETURN_IF_ERROR(job_.session->executor().load(layouts(tokens), Scale::kFull));
    const auto end = Clock::now() + std::chrono::duration<double>(budget_s);
    const size_t total = tokens.size() * workloads.size();
    for (const std::string& workload : workloads) {
      for (const int64_t count : tokens) {
        const double left_s = std::chrono::duration<double>(end - Clock::now()).count();
        const size_t done = record_.rows.size();
        progress.show({fmt::format("{} tokens, {}", count, workload),
                       static_cast<double>(done) / static_cast<double>(total),
                       std::max(left_s, 0.0)});
        auto row = measure({count, workload, seed_}, left_s / static_cast<double>(total - done));
        if (stop_.stop_requested()) return std::move(record_);
        if (!row.ok()) return std::move(row).error();
        record_.rows.push_back(std::move(row).value());
      }
    }
    return std::move(record_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// What each contestant runs at that size.
  std::vector<Candidate> candidates(int64_t tokens) const {
    std::vector<Candidate> found;
    for (const Entrant& entrant : entrants_) {
      found.push_back(entrant.runners.front()->default_candidate(tokens));
      if (!entrant.has_plan) continue;
      const Lookup lookup = entrant.tuner->handle(job_.session->problem()).find(tokens);
      found.push_back(lookup.decision != nullptr && !lookup.decision->is_default
                          ? lookup.decision->candidate
                          : found.back());
    }
    return found;
  }

  std::vector<WeightLayout> layouts(const std::vector<int64_t>& tokens) const {
    std::vector<WeightLayout> needed;
    for (const int64_t count : tokens) {
      for (const Candidate& candidate : candidates(count)) {
        for (const TunableRunner* runner : job_.session->runners()) {
          if (runner->name() != candidate.runner) continue;
          WeightLayout layout{candidate.runner, runner->layout(candidate)};
          if (std::find(needed.begin(), needed.end(), layout) == needed.end())
            needed.push_back(std::move(layout));
        }
      }
    }
    return needed;
  }

  std::string why_wrong(const Candidate& candidate, const Case& where) {
    Workbench& bench = job_.session->bench();
    const std::vector<int64_t> rows = bench.check_rows(where, Scale::kFull, 0);
    const auto output = job_.session->executor().check(candidate, 0, rows);
    if (!output.ok()) return output.error().message;
    if (!output->damage.empty()) return output->damage;
    return bench.judge(where, Scale::kFull, 0, rows, output->outputs).reason;
  }

  // One sample; kMeasurement for a time that is none.
  Result<double> sample(const Candidate& candidate, int calls) {
    const Candidate* const one[] = {&candidate};
    MOETUNE_ASSIGN_OR_RETURN(const auto samples, job_.session->executor().measure(one, -1, calls));
    if (std::isfinite(samples[0].us) && samples[0].us > 0) return samples[0].us;
    return Error{ErrorCode::kMeasurement, fmt::format("a time of {} us", samples[0].us)};
  }

  // Whatever goes wrong is a contestant's own affair, and the others go on. kInterrupted after a
  // stop.
  Result<CompareRow> measure(const Case& where, double seconds) {
    const std::vector<Candidate> all = candidates(where.tokens);
    CompareRow row{.tokens = where.tokens, .workload = where.workload, .rounds = 0, .cells = {}};
    const Status selected = job_.session->executor().select(where, 1);
    std::vector<size_t> running;  // The contestants that are timed.
    for (size_t i = 0; i < all.size(); ++i) {
      CompareCell& cell = row.cells.emplace_back();
      cell.candidate = all[i].text();
      cell.is_default = record_.contestants[i].is_tuned && all[i] == all[i - 1];
      if (cell.is_default) continue;
      cell.failed = selected.ok() ? why_wrong(all[i], where) : selected.error().message;
      if (stop_.stop_requested()) return Error{ErrorCode::kInterrupted, "stopped"};
      if (cell.failed.empty()) running.push_back(i);
    }
    MOETUNE_RETURN_IF_ERROR(time(where, seconds, all, std::move(running), row));
    for (size_t i = 1; i < row.cells.size(); ++i) {
      if (!row.cells[i].is_default) continue;
      row.cells[i] = row.cells[i - 1];
      row.cells[i].is_default = true;
    }
    return row;
  }

  // Takes one sample of each that runs, beginning with that of number `first`. Who fails is out.
  void sample_all(const std::vector<Candidate>& all, size_t first, int calls,
                  std::vector<size_t>& running, CompareRow& row,
                  std::vector<std::vector<double>>& us) {
    std::rotate(running.begin(), running.begin() + static_cast<ptrdiff_t>(first % running.size()),
                running.end());
    std::erase_if(running, [&](size_t i) {
      const Result<double> taken = sample(all[i], calls);
      if (taken.ok()) return us[i].push_back(*taken), false;
      row.cells[i].failed = taken.error().message;
      return true;
    });
  }

  Status time(const Case& where, double seconds, const std::vector<Candidate>& all,
              std::vector<size_t> running, CompareRow& row) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    std::vector<std::vector<double>> us(all.size());
    if (!running.empty()) sample_all(all, 0, 1, running, row, us);
    if (running.empty()) return {};
    // Samples are long enough for the fastest of them.
    double fastest_us = us[running[0]][0];
    for (const size_t i : running) fastest_us = std::min(fastest_us, us[i][0]);
    const Setting setting = setting_for(MeasurementPolicy(), fastest_us);
    if (setting.routings > 1)
      MOETUNE_RETURN_IF_ERROR(job_.session->executor().select(where, setting.routings));
    // The first round records what the others replay.
    for (row.rounds = -1; row.rounds < kMostRounds && !running.empty(); ++row.rounds) {
      if (stop_.stop_requested()) return Error{ErrorCode::kInterrupted, "stopped"};
      if (row.rounds >= kLeastRounds && Clock::now() >= end) break;
      sample_all(all, 1, setting.calls, running, row, us);
      if (row.rounds < 0) us.assign(all.size(), {});
    }
    for (const size_t i : running) {
      CompareCell& cell = row.cells[i];
      const Quartiles spread = quartiles(us[i]);
      cell.median_us = spread.median;
      cell.q1_us = spread.q1;
      cell.q3_us = spread.q3;
      if (us[0].size() == us[i].size()) cell.speedup = paired_ratio(us[0], us[i], 0.95);
    }
    return {};
  }

  Job& job_;
  std::vector<Entrant>& entrants_;
  uint64_t seed_;
  std::stop_token stop_;
  CompareRecord record_;
};

class CompareCommand final : public Command {
 public:
  const char* name() const override { return "compare"; }
  const char* summary() const override {
    return "Measure kernels of several engines at the same sizes, default and tuned";
  }
  const char* examples() const override {
    return "  moetune compare qwen3-30b-a3b --host moetune,vllm,torch --tokens 1..8192\n"
           "  moetune compare glm-5 --tp 8 --host moetune,vllm --config ours.json,theirs.json";
  }
  void declare(Flags& flags) override {
    layer_.declare(flags);
    layer_.declare_layer(flags);
    device_.declare(flags);
    traffic_.declare(flags, "Numbers of tokens to measure at; default 1..1024");
    hosts_.declare(flags);
    flags.value("--budget", "TIME", &budget_, "Time to measure; default 60s");
    flags.value("--config", "LIST", &configs_,
                "Tuned configurations, each of one host; default: where `tune --host NAME` puts "
                "them");
    flags.value("--out", "FILE", &out_, "Also write the JSON object to a file");
    flags.value("--note", "TEXT", &note_, "Kept in the record: a commit, say");
  }
  Result<Exit> run(Output& output) override;

 private:
  Status load_plans(const Job& job, std::vector<Entrant>& entrants, Output& output) const;
  Status report(Output& output, const Job& job, const CompareRecord& record,
                bool interrupted) const;

  LayerFlags layer_;
  DeviceFlags device_;
  TrafficFlags traffic_{"1..1024", "uniform"};
  HostFlags hosts_;
  std::string budget_ = "60s";
  std::string configs_;
  std::string out_;
  std::string note_;
};

Status CompareCommand::load_plans(const Job& job, std::vector<Entrant>& entrants,
                                  Output& output) const {
  for (size_t i = 0; i < entrants.size(); ++i) {
    Entrant& entrant = entrants[i];
    entrant.tuner = std::make_unique<AutoTuner>(job.device());
    std::vector<std::string> files = split_list(configs_);
    if (configs_.empty()) {
      std::error_code error;
      const std::string usual = usual_config_path(job.device(), {job.host_choices[i]});
      if (std::filesystem::exists(usual, error)) files = {usual};
    }
    for (const std::string& file : files) {
      MOETUNE_ASSIGN_OR_RETURN(const bool is_loaded, load_entrant(job, entrant, file, output));
      if (is_loaded) break;
    }
    if (!entrant.has_plan)
      output.note(fmt::format("{}: no plan of this layer; `moetune tune` with --host {} makes one",
                              entrant.host, entrant.host));
  }
  return {};
}

Status CompareCommand::report(Output& output, const Job& job, const CompareRecord& record,
                              bool interrupted) const {
  Json versions = Json::object();
  for (const KernelHost& host : job.hosts)
    versions[host.choice.name] = strings_to_json(host.kernels.versions);
  Json object = {{"moetune", version()},
                 {"note", note_},
                 {"device", cli::describe(job.device())},
                 {"problem", describe_problem(job)},
                 {"versions", std::move(versions)},
                 {"interrupted", interrupted}};
  object.update(record.to_json());
  output.object(object);
  output.text(fmt::format("{} on {}\n{}\n\n{}", job.model.name, job.device().name,
                          job.session->problem().key(), record.to_text()));
  if (out_.empty()) return {};
  MOETUNE_RETURN_IF_ERROR(replace_file(out_, print_json(object)));
  output.text(fmt::format("Written to {}\n", out_));
  return {};
}

Result<Exit> CompareCommand::run(Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const double budget_s, parse_duration("--budget", budget_));
  MOETUNE_ASSIGN_OR_RETURN(const TrafficFlags::Values traffic, traffic_.read(/*many=*/true));
  MOETUNE_ASSIGN_OR_RETURN(const DeviceFlags::Values device, device_.read());
  MOETUNE_ASSIGN_OR_RETURN(const LayerFlags::Layer layer, layer_.read());
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<HostChoice> hosts, hosts_.read());
  if (hosts.empty()) {
    return Error{ErrorCode::kInvalidArgument, "nothing to compare",
                 "name hosts, as in --host moetune,vllm"};
  }
  if (!out_.empty()) MOETUNE_RETURN_IF_ERROR(check_can_write(out_));
  const Interrupts interrupts;
  MOETUNE_ASSIGN_OR_RETURN(Job job, open_job(layer, device, traffic.seed, Purpose::kMeasure, output,
                                             Where::kHelperOrHere, {}, {}, {.hosts = hosts}));
  stop_helpers_on(job, interrupts.token());
  std::vector<Entrant> entrants = entrants_of(job);
  MOETUNE_RETURN_IF_ERROR(load_plans(job, entrants, output));
  Comparison comparison(job, entrants, traffic.seed, interrupts.token());
  MOETUNE_ASSIGN_OR_RETURN(const CompareRecord record,
                           comparison.run(traffic.tokens, traffic.workloads, budget_s));
  const bool interrupted = interrupts.token().stop_requested();
  MOETUNE_RETURN_IF_ERROR(report(output, job, record, interrupted));
  if (interrupted) return Exit::kInterrupted;
  const std::string trouble = trouble_of(job);
  if (!trouble.empty()) output.note(fmt::format("error: {}", trouble));
  return trouble.empty() ? Exit::kDone : Exit::kFailed;
}

}  // namespace

std::unique_ptr<Command> make_compare_command() { return std::make_unique<CompareCommand>(); }

}  // namespace moetune::cli

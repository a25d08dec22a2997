// moetune bench: what runs against the default, side by side, on fresh measurements.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <set>

#include "base/file.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "cli/bench_record.h"
#include "cli/command.h"
#include "cli/host_flags.h"
#include "cli/interrupts.h"
#include "cli/job.h"
#include "cli/mode_flags.h"
#include "cli/progress.h"
#include "cli/save.h"
#include "cli/values.h"
#include "cli/version.h"
#include "tuner/tune_meter.h"

namespace moetune::cli {
namespace {

constexpr int64_t kMostRandomTokens = 1000;
constexpr int64_t kLookups = 1000000;

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// `count` distinct numbers in [1, maximum], ascending; all of them where there are no more.
std::vector<int64_t> random_tokens(int64_t count, int64_t maximum, uint64_t seed) {
  Random random(seed);
  std::set<int64_t> tokens;
  while (static_cast<int64_t>(tokens.size()) < std::min(count, maximum)) {
    tokens.insert(1 + random.below(static_cast<uint32_t>(maximum)));
  }
  return {tokens.begin(), tokens.end()};
}

/// The layouts that measuring the default and everything that a look-up for `tokens` gives needs.
std::vector<WeightLayout> layouts_of(Job& job, const PlanHandle& plan,
                                     const std::vector<int64_t>& tokens) {
  std::vector<WeightLayout> layouts;
  const auto add = [&](const Candidate& candidate) {
    for (TunableRunner* runner : job.session->runners()) {
      if (runner->name() != candidate.runner) continue;
      WeightLayout layout{candidate.runner, runner->layout(candidate)};
      if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end())
        layouts.push_back(std::move(layout));
    }
  };
  for (int64_t count : tokens) {
    add(job.session->default_runner().default_candidate(count));
    if (const Decision* decision = plan.find(count).decision) add(decision->candidate);
  }
  return layouts;
}

/// Measures rows one after the other, each with an equal share of what is left of the budget.
class Measurement {
 public:
  Measurement(Job& job, PlanHandle plan, uint64_t seed, double budget_s, std::stop_token stop)
      : job_(job), plan_(plan), seed_(seed), budget_s_(budget_s), stop_(std::move(stop)) {}

  /// Rows in the order of workloads, then tokens. Ends early, with what there is, when stopped; a
  /// `sample` of sizes, measured in a random order, at the end of the budget too.
  Result<std::vector<BenchRow>> run(const std::vector<int64_t>& tokens,
                                    const std::vector<std::string>& workloads, bool is_sample) {
    Progress progress;  // Silent again when this returns: results are printed next.
    progress.show({"packing weights", 0, -1});
    MOETUNE_RETURN_IF_ERROR(
        job_.session->executor().load(layouts_of(job_, plan_, tokens), Scale::kFull));
    // Packing is no measuring.
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(budget_s_));
    std::vector<std::pair<size_t, int64_t>> order;  // Of workloads, tokens.
    for (size_t i = 0; i < workloads.size(); ++i)
      for (int64_t count : tokens) order.emplace_back(i, count);
    Random random(seed_, 1);
    for (size_t i = order.size(); is_sample && i > 1; --i)
      std::swap(order[i - 1], order[random.below(static_cast<uint32_t>(i))]);
    std::vector<std::pair<size_t, BenchRow>> rows;
    for (const auto& [i, count] : order) {
      const double left_s = std::chrono::duration<double>(end - Clock::now()).count();
      if (stop_.stop_requested() || (is_sample && !rows.empty() && left_s <= 0)) break;
      progress.show({fmt::format("{} tokens, {}", count, workloads[i]),
                     static_cast<double>(rows.size()) / static_cast<double>(order.size()),
                     std::max(left_s, 0.0)});
      Result<BenchRow> row =
          measure(count, workloads[i], left_s / static_cast<double>(order.size() - rows.size()));
      if (!row.ok() && row.error().code == ErrorCode::kInterrupted) break;
      if (!row.ok()) return std::move(row).error();
      rows.emplace_back(i, std::move(row).value());
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, a.second.tokens) < std::pair(b.first, b.second.tokens);
    });
    std::vector<BenchRow> sorted;
    for (auto& [i, row] : rows) sorted.push_back(std::move(row));
    return sorted;
  }

  /// Takes a longer look at rows that seem to lose: with hundreds of rows some do by chance alone.
  Status look_again(std::vector<BenchRow>& rows) {
    constexpr double kLook_s = 5;
    Progress progress;
    for (BenchRow& row : rows) {
      if (stop_.stop_requested()) break;
      if (loss_of(row) <= kMostLoss) continue;
      progress.show({fmt::format("{} tokens, {}, again", row.tokens, row.workload), -1, -1});
      Result<BenchRow> again = measure(row.tokens, row.workload, kLook_s);
      if (!again.ok() && again.error().code == ErrorCode::kInterrupted) break;
      if (!again.ok()) return std::move(again).error();
      row = std::move(again).value();
      row.is_remeasured = true;
    }
    return {};
  }

  /// Of the suspects, those that show again when their two sizes are timed in turns: rows lie
  /// seconds apart, in which a machine may have slowed down.
  Result<std::vector<Cliff>> confirm(const std::vector<Cliff>& suspects) {
    constexpr int kTurns = 3;
    std::vector<Cliff> confirmed;
    Progress progress;
    for (const Cliff& suspect : suspects) {
      double smaller_us = std::numeric_limits<double>::infinity();
      double larger_us = smaller_us;
      for (int turn = 0; turn < kTurns && !stop_.stop_requested(); ++turn) {
        progress.show({fmt::format("{} against {} tokens, {}", suspect.tokens, suspect.larger,
                                   suspect.workload),
                       -1, -1});
        MOETUNE_ASSIGN_OR_RETURN(const double mine, time_us(suspect.tokens, suspect.workload));
        MOETUNE_ASSIGN_OR_RETURN(const double other, time_us(suspect.larger, suspect.workload));
        smaller_us = std::min(smaller_us, mine);
        larger_us = std::min(larger_us, other);
      }
      const double ratio = smaller_us / larger_us;
      if (ratio > kCliffLoss)
        confirmed.push_back({suspect.tokens, suspect.larger, suspect.workload, ratio});
    }
    return confirmed;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Status check(const Candidate& candidate, const Case& where) {
    Workbench& bench = job_.session->bench();
    const std::vector<int64_t> rows = bench.check_rows(where, Scale::kFull, 0);
    MOETUNE_ASSIGN_OR_RETURN(const CheckOutput output,
                             job_.session->executor().check(candidate, 0, rows));
    std::string reason = output.damage;
    if (reason.empty()) reason = bench.judge(where, Scale::kFull, 0, rows, output.outputs).reason;
    if (reason.empty()) return {};
    return Error{ErrorCode::kWrongResult,
                 fmt::format("{} at {} tokens, {}: {}", candidate.text(), where.tokens,
                             where.workload, reason),
                 "`moetune verify` checks everything that a plan can run"};
  }

  Result<BenchRow> measure(int64_t tokens, const std::string& workload, double seconds) {
    Executor& executor = job_.session->executor();
    const Case where{tokens, workload, seed_};
    const Lookup lookup = plan_.find(tokens);
    const Candidate fallback = job_.session->default_runner().default_candidate(tokens);
    const Candidate& tuned = lookup.decision != nullptr ? lookup.decision->candidate : fallback;

    MOETUNE_RETURN_IF_ERROR(executor.select(where, 1));
    MOETUNE_RETURN_IF_ERROR(check(fallback, where));
    if (tuned.text() != fallback.text()) MOETUNE_RETURN_IF_ERROR(check(tuned, where));
    const Candidate* const once[] = {&fallback};
    MOETUNE_ASSIGN_OR_RETURN(const std::vector<Sample> first, executor.measure(once, -1, 1));
    const Setting setting = setting_for(policy_, first.front().us);
    if (setting.routings > 1) MOETUNE_RETURN_IF_ERROR(executor.select(where, setting.routings));

    BenchRow row{.tokens = tokens,
                 .workload = workload,
                 .provenance = lookup.provenance,
                 .candidate = tuned.text(),
                 .is_default = tuned.text() == fallback.text()};
    MOETUNE_ASSIGN_OR_RETURN(
        row.times, measure_pair(executor, fallback, tuned, setting.calls, seconds, policy_, stop_));
    row.work = mean_work(where, setting.routings);
    return row;
  }

  /// Of what runs at that size, which was checked there: the least of a few samples.
  Result<double> time_us(int64_t tokens, const std::string& workload) {
    Executor& executor = job_.session->executor();
    const Lookup lookup = plan_.find(tokens);
    const Candidate candidate = lookup.decision != nullptr
                                    ? lookup.decision->candidate
                                    : job_.session->default_runner().default_candidate(tokens);
    const Case where{tokens, workload, seed_};
    MOETUNE_RETURN_IF_ERROR(executor.select(where, 1));
    const Candidate* const once[] = {&candidate};
    MOETUNE_ASSIGN_OR_RETURN(const std::vector<Sample> first, executor.measure(once, -1, 1));
    const Setting setting = setting_for(policy_, first.front().us);
    if (setting.routings > 1) MOETUNE_RETURN_IF_ERROR(executor.select(where, setting.routings));
    const Candidate* const twice[] = {&candidate, &candidate};
    MOETUNE_ASSIGN_OR_RETURN(const std::vector<Sample> samples,
                             executor.measure(twice, -1, setting.calls));
    return std::min(samples[0].us, samples[1].us);
  }

  /// Over the routing samples that the time is of.
  Work mean_work(const Case& where, int routings) {
    Work mean;
    for (int sample = 0; sample < routings; ++sample) {
      const Work work = job_.session->bench().work(where, Scale::kFull, sample);
      mean.bytes += work.bytes / routings;
      mean.operations += work.operations / routings;
      mean.touched_chunks += work.touched_chunks;
    }
    mean.touched_chunks = (mean.touched_chunks + routings / 2) / routings;
    return mean;
  }

  Job& job_;
  PlanHandle plan_;
  uint64_t seed_;
  double budget_s_;
  std::stop_token stop_;
  MeasurementPolicy policy_;
};

class BenchCommand final : public Command {
 public:
  const char* name() const override { return "bench"; }
  const char* summary() const override {
    return "Measure the tuned plan against the default, side by side";
  }
  const char* examples() const override {
    return "  moetune bench qwen3-30b-a3b --weights nvfp4\n"
           "  moetune bench ./my-model --random-tokens 40 --tokens 1..1024 --workload "
           "uniform,zipf:1.2 --out record.json\n"
           "  moetune bench qwen3-30b-a3b --weights nvfp4 --lookup";
  }
  void declare(Flags& flags) override {
    layer_.declare(flags);
    layer_.declare_layer(flags);
    device_.declare(flags);
    traffic_.declare(flags, "Numbers of tokens to measure at; default 1..1024");
    flags.value(
        "--random-tokens", "N", &random_,
        "Measure at N random numbers of tokens up to the largest of --tokens instead, or at "
        "those that the budget suffices for");
    flags.value("--budget", "TIME", &budget_, "Time to measure; default 60s");
    flags.value("--config", "FILE", &config_, "A tuned configuration; default: this machine's");
    flags.value("--out", "FILE", &out_, "Also write the JSON object to a file");
    flags.value("--note", "TEXT", &note_, "Kept in the record: a commit, say");
    flags.toggle("--lookup", &lookup_, "Also measure what a look-up costs");
    flags.value("--isolation", "WHERE", &isolation_,
                "Where kernels run: worker (a helper process) or in-process, the default where the "
                "plan's evidence has proven them");
    hosts_.declare(flags);
    mode_.declare(flags);
  }
  Result<Exit> run(Output& output) override;

 private:
  Status report(Output& output, Job& job, const BenchRecord& record, const std::string& config,
                bool interrupted);

  LayerFlags layer_;
  DeviceFlags device_;
  TrafficFlags traffic_{"1..1024", "uniform"};
  std::string random_;
  std::string budget_ = "60s";
  std::string config_;
  std::string out_;
  std::string note_;
  bool lookup_ = false;
  std::string isolation_;
  HostFlags hosts_;
  ModeFlags mode_;
};

Status BenchCommand::report(Output& output, Job& job, const BenchRecord& record,
                            const std::string& config, bool interrupted) {
  Json object = {{"moetune", version()},
                 {"date", utc_now()},
                 {"note", note_},
                 {"device", cli::describe(job.device())},
                 {"problem", describe_problem(job)},
                 {"config", config},
                 {"isolation", isolation_name(job)},
                 {"interrupted", interrupted}};
  object.update(record.to_json());
  output.object(object);
  output.text(fmt::format("{} on {}\n{}\nplan from {}\n\n", job.model.name, job.device().name,
                          job.session->problem().key(),
                          config.empty() ? "nowhere: defaults only" : config));
  output.text(record.to_text());
  if (out_.empty()) return {};
  MOETUNE_RETURN_IF_ERROR(replace_file(out_, print_json(object)));
  output.text(fmt::format("Written to {}\n", out_));
  return {};
}

Result<Exit> BenchCommand::run(Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const double budget_s, parse_duration("--budget", budget_));
  MOETUNE_ASSIGN_OR_RETURN(TrafficFlags::Values traffic, traffic_.read(/*many=*/true));
  if (!random_.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(const int64_t count,
                             parse_whole("--random-tokens", random_, 1, kMostRandomTokens));
    traffic.tokens = random_tokens(count, traffic.tokens.back(), traffic.seed);
  }
  MOETUNE_ASSIGN_OR_RETURN(const DeviceFlags::Values device, device_.read());
  MOETUNE_ASSIGN_OR_RETURN(const LayerFlags::Layer layer, layer_.read());
  if (!out_.empty()) MOETUNE_RETURN_IF_ERROR(check_can_write(out_));
  MOETUNE_ASSIGN_OR_RETURN(const Where where, parse_isolation(isolation_));
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<HostChoice> hosts, hosts_.read());
  MOETUNE_RETURN_IF_ERROR(mode_.check(config_));
  const Interrupts interrupts;
  MOETUNE_ASSIGN_OR_RETURN(
      Job job, open_job(layer, device, traffic.seed, Purpose::kMeasure, output, Where::kHere,
                        mode_.tuner_options(), {}, {.hosts = hosts}));
  MOETUNE_ASSIGN_OR_RETURN(const std::string config,
                           load_plan(job, config_, mode_, traffic.tokens.back(), output));
  MOETUNE_RETURN_IF_ERROR(
      place_candidates(job, device, traffic.seed, where, all_proven(job, traffic.tokens), output));
  stop_helpers_on(job, interrupts.token());
  const PlanHandle plan = job.tuner->handle(job.session->problem());

  BenchRecord record;
  Result<Ceilings> ceilings = measure_ceilings(job, output);
  if (ceilings.ok()) {
    record.ceilings = std::move(ceilings).value();
  } else if (!interrupts.token().stop_requested()) {
    return std::move(ceilings).error();
  }
  Measurement measurement(job, plan, traffic.seed, budget_s, interrupts.token());
  MOETUNE_ASSIGN_OR_RETURN(record.rows,
                           measurement.run(traffic.tokens, traffic.workloads, !random_.empty()));
  MOETUNE_RETURN_IF_ERROR(measurement.look_again(record.rows));
  record.asked = traffic.tokens.size() * traffic.workloads.size();
  if (const std::string trouble = trouble_of(job); !trouble.empty())
    return Error{ErrorCode::kRun, trouble};
  MOETUNE_ASSIGN_OR_RETURN(record.cliffs, measurement.confirm(find_cliffs(record.rows)));
  for (const BenchRow& row : record.rows)
    raise_to_seen(record.ceilings, row.work, row.times.tuned_us);
  for (BenchRow& row : record.rows)
    row.roofline = roofline(row.work, record.ceilings, row.times.tuned_us);
  if (lookup_) {
    record.lookup = measure_lookups(plan, traffic.tokens.back(), kLookups);
    record.unknown_lookup =
        measure_lookups(job.tuner->handle({"unknown", {}}), traffic.tokens.back(), kLookups);
  }
  const bool interrupted = interrupts.token().stop_requested();
  MOETUNE_RETURN_IF_ERROR(report(output, job, record, config, interrupted));
  return interrupted ? Exit::kInterrupted : Exit::kDone;
}

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace moetune::cli

// moetune tune: measures, decides, saves, and shows what it brought.
#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/interrupts.h"
#include "cli/job.h"
#include "cli/progress.h"
#include "cli/rejected.h"
#include "cli/save.h"
#include "cli/table.h"
#include "cli/tune_journal.h"
#include "cli/values.h"
#include "cli/version.h"
#include "journal/place.h"

namespace moetune::cli {
namespace {

/// One decision as it is reported.
struct Row {
  const Decision* decision = nullptr;
  Candidate fallback;  ///< The default at these tokens.
  double default_us = 0;
  double tuned_us = 0;
  double speedup = 1;
  double low = 1;
  double high = 1;
  Work work;
  Roofline roofline;
};

Row row_of(const Decision& decision, MoeSession& session, uint64_t seed) {
  const Evidence& evidence = decision.evidence;
  Row row{.decision = &decision,
          .fallback = session.default_runner().default_candidate(decision.tokens),
          .default_us = evidence.fallback.median_us,
          .tuned_us = evidence.fallback.median_us};
  if (!decision.is_default) {
    row.tuned_us = evidence.chosen.median_us;
    row.speedup = evidence.speedup;
    row.low = evidence.speedup_low;
    row.high = evidence.speedup_high;
  }
  row.work = session.bench().work(
      {decision.tokens, evidence.workload.empty() ? "uniform" : evidence.workload, seed},
      evidence.on_part ? Scale::kSubset : Scale::kFull, 0);
  return row;
}

Json or_null(double value) { return value > 0 ? Json(value) : Json(); }

Json describe(const Row& row) {
  const Decision& decision = *row.decision;
  return {
      {"tokens", decision.tokens},
      {"from", decision.from},
      {"to", decision.to},
      {"default_us", or_null(row.default_us)},
      {"tuned_us", or_null(row.tuned_us)},
      {"speedup", row.speedup},
      {"speedup_ci", {row.low, row.high}},
      {"resolved", decision.evidence.resolved},
      {"scheme", decision.candidate.scheme},
      {"stages", describe_stages(decision.candidate)},
      {"bound", row.roofline.bound},
      {"ceiling_fraction", or_null(row.roofline.fraction)},
      {"ceiling", row.roofline.ceiling},
      {"touched_experts", row.work.touched_chunks},
      {"on_part", decision.evidence.on_part},
      {"provenance", to_string(decision.is_default ? Provenance::kDefault : Provenance::kTuned)},
      {"note", decision.evidence.note}};
}

std::string speedup_text(const Row& row) {
  if (row.decision->is_default) return "1";
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", row.speedup, row.low, row.high);
}

std::string verdict(const Decision& decision) {
  if (!decision.is_default) return "faster";
  return decision.evidence.resolved ? "default best" : "unresolved";
}

std::string table_of(const std::vector<Row>& rows) {
  using Align = Table::Align;
  Table table({{"tokens"},
               {"default"},
               {"tuned"},
               {"speed-up [95 %]"},
               {"outcome", Align::kLeft},
               {"bound", Align::kLeft},
               {"of ceiling"},
               {"experts"},
               {"unlike the default", Align::kLeft}});
  for (const Row& row : rows) {
    const Decision& decision = *row.decision;
    table.add_row(
        {std::to_string(decision.tokens) + (decision.evidence.on_part ? "*" : ""),
         time_text(row.default_us), time_text(row.tuned_us), speedup_text(row), verdict(decision),
         row.roofline.bound,
         row.roofline.fraction > 0 ? fmt::format("{:.0f} %", 100 * row.roofline.fraction) : "-",
         std::to_string(row.work.touched_chunks),
         decision.is_default ? "(default)" : difference_text(decision.candidate, row.fallback)});
  }
  std::string text = table.text();
  const bool any_part = std::any_of(rows.begin(), rows.end(),
                                    [](const Row& row) { return row.decision->evidence.on_part; });
  if (any_part) {
    text +=
        "* calls on the whole layer are dear here: measured on a part of the experts, with as many "
        "rows for each\n";
  }
  return text;
}

/// What a run found out and where it went.
struct Outcome {
  TuneReport report;
  double budget_s = 0;
  Ceilings ceilings;
  int64_t ceilings_unix_ms = 0;  ///< When they were measured; 0: in this run, or not at all.
  std::vector<Row> rows;         ///< Of report.plan's decisions.
  std::string path;
  bool saved = false;
  std::string journal;  ///< "" where none is kept.
  bool deterministic = false;
};

Json describe(const Outcome& outcome, const Job& job) {
  const TuneReport& report = outcome.report;
  Json buckets = Json::array();
  for (const Row& row : outcome.rows) buckets.push_back(describe(row));
  Json ceilings = cli::describe(outcome.ceilings);
  if (outcome.ceilings_unix_ms > 0) ceilings["unix_ms"] = outcome.ceilings_unix_ms;
  return {{"moetune", version()},
          {"device", cli::describe(job.device())},
          {"problem", describe_problem(job)},
          {"layout", report.plan.layout},
          {"seconds", report.seconds},
          {"measurements", report.measurements},
          {"earlier_seconds", report.earlier_s},
          {"from_journal", report.from_store},
          {"interrupted", report.interrupted},
          {"isolation", isolation_name(job)},
          {"deterministic", outcome.deterministic},
          {"respawns", job.isolation ? job.isolation.host->respawns() : 0},
          {"ceilings", std::move(ceilings)},
          {"buckets", std::move(buckets)},
          {"rejected", cli::describe(collect_rejected(report.rejected))},
          {"warnings", report.warnings},
          {"config", outcome.path},
          {"saved", outcome.saved},
          {"journal", outcome.journal}};
}

std::string spent_text(const TuneReport& report) {
  const TuneTimes& s = report.spent;
  const double rest =
      report.seconds - (s.pack + s.inputs + s.compile + s.check + s.judge + s.sample + s.keep);
  return fmt::format(
      "Time went to: sampling {:.1f} s, checked runs {:.1f} s, judging them {:.1f} s, compiling "
      "{:.1f} s, packing {:.1f} s, making inputs {:.1f} s, keeping measurements {:.2f} s, the rest "
      "{:.1f} s.\n",
      s.sample, s.check, s.judge, s.compile, s.pack, s.inputs, s.keep, rest);
}

/// What earlier runs have to do with this one's result; empty where there were none.
std::string earlier_text(const Outcome& outcome) {
  const TuneReport& report = outcome.report;
  if (report.earlier_s <= 0) return "";
  const double most = std::max({outcome.budget_s, report.earlier_s, report.finished_budget_s});
  const std::string more = fmt::format("--budget {} would go on", duration_flag(2 * most));
  if (!report.from_store) {
    return fmt::format("Earlier runs had spent {:.1f} s of the budget; this one took up there.\n",
                       report.earlier_s);
  }
  if (report.earlier_s < outcome.budget_s * 0.97) {
    return fmt::format(
        "{:.1f} s of tuning are in the journal already and left nothing to do within this budget; "
        "nothing was measured. {}.\n",
        report.earlier_s, more);
  }
  return fmt::format(
      "{:.1f} s of tuning are in the journal already, which is this budget; nothing was measured. "
      "{}.\n",
      report.earlier_s, more);
}

/// Its last line. The file is always named: `show` alone would look for that of the usual device.
std::string rejected_text(const Outcome& outcome) {
  const std::vector<RejectedCandidate> rejected = collect_rejected(outcome.report.rejected);
  const std::string line = rejected_line(rejected);
  if (rejected.empty()) return line;
  if (outcome.journal.empty()) return line + "; --json lists them";
  return fmt::format("{}; `moetune show {} --rejected{}` lists them", line, outcome.path,
                     outcome.journal == journal::default_path().value_or("")
                         ? ""
                         : " --journal " + outcome.journal);
}

std::string text_of(const Outcome& outcome, const Job& job) {
  const TuneReport& report = outcome.report;
  std::string text =
      fmt::format("{} on {}\n{}\n\n", job.model.name, job.device().name, report.plan.problem.key());
  text += table_of(outcome.rows);
  text += fmt::format("\nWeight layout {}; {} measurements in {:.1f} s.\n", report.plan.layout,
                      report.measurements, report.seconds);
  if (!report.from_store) text += spent_text(report);
  text += earlier_text(outcome);
  const Ceilings& ceilings = outcome.ceilings;
  if (ceilings.read_bytes_per_s > 0) {
    const std::string when = outcome.ceilings_unix_ms > 0
                                 ? fmt::format(", measured {}", date_text(outcome.ceilings_unix_ms))
                                 : "";
    text += fmt::format("Ceilings: {}{}.\n", ceilings_text(ceilings), when);
  }
  if (outcome.saved) text += fmt::format("Saved to {}\n", outcome.path);
  text += rejected_text(outcome) + "\n";
  return text;
}

class TuneCommand final : public Command {
 public:
  const char* name() const override { return "tune"; }
  const char* summary() const override {
    return "Find the fastest kernels for a model's MoE layer on this machine";
  }
  const char* examples() const override {
    return "  moetune tune qwen3-30b-a3b --weights nvfp4\n"
           "  moetune tune ./my-model --tokens 1..8192 --budget 5m --tp 2 --out tuned.json";
  }
  void declare(Flags& flags) override {
    layer_.declare(flags);
    layer_.declare_layer(flags);
    device_.declare(flags);
    traffic_.declare(flags, "Numbers of tokens to measure at: 1,64,4096 or 1..1024 (default)");
    flags.value("--budget", "TIME", &budget_, "Time to measure, as in 60s (default), 500ms or 5m");
    flags.value("--out", "FILE", &out_,
                "Where the result goes; other plans in it stay. Default: where look-ups find it");
    journal_.declare(flags);
    flags.value(
        "--isolation", "WHERE", &isolation_,
        "Where candidates run: worker (a helper process, the default where there is one) or "
        "in-process");
    flags.toggle("--deterministic", &deterministic_,
                 "Only kernels that give the same bits on every run");
  }
  Result<Exit> run(Output& output) override;

 private:
  Result<TuneReport> tune(Job& job, const TrafficFlags::Values& traffic,
                          std::optional<uint64_t> memory_bytes, double budget_s,
                          std::stop_token stop);
  Result<bool> save(const TuneReport& report, const DeviceProperties& device,
                    const std::string& path, Output& output);
  /// Known from an earlier run of this program on this device, or else measured now.
  void find_ceilings(Job& job, Outcome& outcome, Output& output);

  LayerFlags layer_;
  DeviceFlags device_;
  TrafficFlags traffic_{"1..1024", "uniform"};
  std::string budget_ = "60s";
  std::string out_;
  TuneJournal journal_;
  std::string isolation_;
  bool deterministic_ = false;
};

ProgressState state_of(const TuneProgress& tuning) {
  ProgressState state;
  state.text = tuning.phase;
  if (tuning.tokens > 0) state.text += fmt::format(" at {} tokens", tuning.tokens);
  if (tuning.candidates_left > 0)
    state.text += fmt::format(", {} candidates", tuning.candidates_left);
  state.text += fmt::format(", {} of {} buckets done", tuning.buckets_done, tuning.buckets);
  const double total = tuning.elapsed_s + tuning.eta_s;
  state.done = total > 0 ? tuning.elapsed_s / total : 0;
  state.eta_s = tuning.eta_s;
  return state;
}

Result<TuneReport> TuneCommand::tune(Job& job, const TrafficFlags::Values& traffic,
                                     std::optional<uint64_t> memory_bytes, double budget_s,
                                     std::stop_token stop) {
  MOETUNE_ASSIGN_OR_RETURN(Buckets buckets, Buckets::from(traffic.tokens));
  TuneRequest request = job.session->request(std::move(buckets));
  request.workload = traffic.workloads.front();
  request.budget_s = budget_s;
  request.seed = traffic.seed;
  if (memory_bytes) request.limits = fmt::format("memory={}", *memory_bytes);
  request.stop = std::move(stop);
  request.store = journal_.store();
  WorkerHost* helper = job.isolation.host.get();
  if (helper != nullptr) helper->stop_on(request.stop);
  Progress progress;
  progress.show({"preparing", 0, budget_s});
  request.progress = [&progress](const TuneProgress& tuning) { progress.show(state_of(tuning)); };
  Result<TuneReport> report = job.tuner->tune(request);
  job.session->executor().unload();
  job.session->exact_executor().unload();
  if (helper != nullptr && report.ok() && !helper->trouble().empty())
    report->warnings.push_back(helper->trouble());
  return report;
}

Result<bool> TuneCommand::save(const TuneReport& report, const DeviceProperties& device,
                               const std::string& path, Output& output) {
  const std::vector<Decision>& decisions = report.plan.decisions;
  const bool is_evidence =
      std::any_of(decisions.begin(), decisions.end(), [](const Decision& decision) {
        return decision.evidence.resolved || decision.evidence.fallback.samples > 0;
      });
  if (report.measurements == 0 && !is_evidence) {
    output.note(fmt::format("nothing was measured before the {} ended; {} stays as it is",
                            report.interrupted ? "run" : "budget", path));
    return false;
  }
  if (knows_less(report, path)) {
    output.note(fmt::format(
        "{} knows more about this layer than this run found out before it ended; it stays as it is",
        path));
    return false;
  }
  TunedConfiguration result;
  result.device = device;
  result.put(report.plan);
  MOETUNE_RETURN_IF_ERROR(result.save_merged(path));
  return true;
}

void TuneCommand::find_ceilings(Job& job, Outcome& outcome, Output& output) {
  const FusedMoeSpec& spec = job.session->spec();
  const size_t bytes = ceiling_bytes(spec);
  const std::string device = job.device().key();
  const std::string what =
      fmt::format("read of {} MiB at most, {}", bytes >> 20, to_string(spec.weights));
  journal::JournalStore* journal = journal_.journal();
  if (const auto known = journal ? journal->find_ceiling(device, what) : std::nullopt) {
    outcome.ceilings = {known->read_bytes_per_s, static_cast<size_t>(known->read_bytes),
                        known->operations_per_s, known->read_name, known->operations_name};
    outcome.ceilings_unix_ms = known->unix_ms;
    return;
  }
  if (outcome.report.interrupted) return;
  Progress progress;
  progress.show({"measuring the machine's ceilings", -1, -1});
  const Result<Ceilings> measured = job.backend->measure_ceilings(bytes, spec.weights);
  if (!measured.ok()) return output.note(fmt::format("no ceilings: {}", measured.error().message));
  outcome.ceilings = *measured;
  if (journal == nullptr) return;
  journal->put_ceiling({device, what, static_cast<int64_t>(measured->read_bytes),
                        measured->read_bytes_per_s, measured->read_name, measured->operations_per_s,
                        measured->operations_name, journal::unix_ms_now()});
}

Result<Exit> TuneCommand::run(Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const double budget_s, parse_duration("--budget", budget_));
  MOETUNE_ASSIGN_OR_RETURN(const TrafficFlags::Values traffic, traffic_.read(/*many=*/false));
  MOETUNE_ASSIGN_OR_RETURN(const DeviceFlags::Values device, device_.read());
  MOETUNE_ASSIGN_OR_RETURN(const LayerFlags::Layer layer, layer_.read());
  MOETUNE_ASSIGN_OR_RETURN(const Where where, parse_isolation(isolation_));
  if (!out_.empty()) MOETUNE_RETURN_IF_ERROR(check_can_write(out_));
  const Interrupts interrupts;
  MOETUNE_ASSIGN_OR_RETURN(Job job, open_job(layer, device, traffic.seed, Purpose::kMeasure, output,
                                             where, {.deterministic = deterministic_}));
  MOETUNE_ASSIGN_OR_RETURN(const std::string path, prepare_output(out_, job.device()));
  MOETUNE_RETURN_IF_ERROR(journal_.open(traffic.workloads.front(), job.device(), output));

  Outcome outcome{.budget_s = budget_s,
                  .path = path,
                  .journal = journal_.path(),
                  .deterministic = deterministic_};
  MOETUNE_ASSIGN_OR_RETURN(outcome.report,
                           tune(job, traffic, device.memory_bytes, budget_s, interrupts.token()));
  const TuneReport& report = outcome.report;
  const Result<bool> saved = save(report, job.device(), path, output);
  outcome.saved = saved.ok() && *saved;
  // Minutes of measuring are not to be lost to a full disk: what was found is printed all the same.
  if (!saved.ok()) output.note(fmt::format("error: not saved: {}", saved.error().message));
  find_ceilings(job, outcome, output);
  for (const Decision& decision : report.plan.decisions) {
    const Row& row = outcome.rows.emplace_back(row_of(decision, *job.session, traffic.seed));
    raise_to_seen(outcome.ceilings, row.work, row.tuned_us);
  }
  for (Row& row : outcome.rows) row.roofline = roofline(row.work, outcome.ceilings, row.tuned_us);
  for (const std::string& warning : report.warnings)
    output.note(fmt::format("warning: {}", warning));
  output.object(describe(outcome, job));
  output.text(text_of(outcome, job));
  if (report.interrupted) return Exit::kInterrupted;
  return saved.ok() ? Exit::kDone : Exit::kFailed;
}

}  // namespace

std::unique_ptr<Command> make_tune_command() { return std::make_unique<TuneCommand>(); }

}  // namespace moetune::cli

// moetune tune: measures, decides, saves, and shows what it brought.
#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/host_flags.h"
#include "cli/imported.h"
#include "cli/interrupts.h"
#include "cli/job.h"
#include "cli/progress.h"
#include "cli/save.h"
#include "cli/tune_journal.h"
#include "cli/tune_report.h"
#include "cli/values.h"

namespace moetune::cli {
namespace {

class TuneCommand final : public Command {
 public:
  const char* name() const override { return "tune"; }
  const char* summary() const override {
    return "Find the fastest kernels for a model's MoE layer on this machine";
  }
  const char* examples() const override {
    return "  moetune tune qwen3-30b-a3b --weights nvfp4\n"
           "  moetune tune ./my-model --tokens 1..8192 --budget 5m --tp 2 --out tuned.json\n"
           "  moetune tune glm-5 --tp 8 --host vllm --budget 2m";
  }
  void declare(Flags& flags) override {
    layer_.declare(flags);
    layer_.declare_layer(flags);
    device_.declare(flags);
    traffic_.declare(flags, "Numbers of tokens to measure at: 1,64,4096 or 1..1024 (default)");
    flags.value("--budget", "TIME", &budget_, "Time to measure, as in 60s (default), 500ms or 5m");
    flags.value(
        "--candidate-budget", "TIME", &candidate_budget_,
        "What one candidate gets at one number of tokens, to compile, be checked and timed, as "
        "in 5s; default: no limit but the deadlines");
    flags.value("--compile-deadline", "TIME", &compile_deadline_,
                "After which a helper that compiles is ended; default 30s");
    flags.value(
        "--run-deadline", "TIME", &run_deadline_,
        "After which a helper that runs a candidate is ended; default 2s, 30s for the first");
    flags.value("--out", "FILE", &out_,
                "Where the result goes; other plans in it stay. Default: where look-ups find it");
    journal_.declare(flags);
    flags.value(
        "--isolation", "WHERE", &isolation_,
        "Where candidates run: worker (a helper process, the default where there is one) or "
        "in-process");
    hosts_.declare(flags);
    flags.value(
        "--import", "FILE", &import_,
        "A tuning file of vLLM or SGLang, whose tactics compete; what of it is slower than the "
        "default is named");
    flags.toggle("--deterministic", &deterministic_,
                 "Only kernels that give the same bits on every run");
  }
  Result<Exit> run(Output& output) override;

 private:
  /// What one candidate may take: its budget, and the deadlines of a helper.
  Result<WorkerPolicy> read_limits();
  Result<TuneReport> tune(Job& job, const TrafficFlags::Values& traffic,
                          std::optional<uint64_t> memory_bytes, double budget_s,
                          std::stop_token stop);
  Result<bool> save(const TuneReport& report, const DeviceProperties& device,
                    const std::string& path, Output& output);
  /// Known from an earlier run of this program on this device, or else measured now.
  void find_ceilings(Job& job, TuneOutcome& outcome, Output& output);

  LayerFlags layer_;
  DeviceFlags device_;
  TrafficFlags traffic_{"1..1024", "uniform"};
  std::string budget_ = "60s";
  std::string candidate_budget_;
  double candidate_budget_s_ = 0;
  std::string compile_deadline_;
  std::string run_deadline_;
  std::string out_;
  TuneJournal journal_;
  std::string isolation_;
  HostFlags hosts_;
  std::string import_;
  ImportedTable imported_;
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

Result<WorkerPolicy> TuneCommand::read_limits() {
  WorkerPolicy policy;
  if (!candidate_budget_.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(candidate_budget_s_,
                             parse_duration("--candidate-budget", candidate_budget_));
  }
  if (!compile_deadline_.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(policy.compile_s,
                             parse_duration("--compile-deadline", compile_deadline_));
  }
  if (!run_deadline_.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(policy.run_s, parse_duration("--run-deadline", run_deadline_));
    policy.first_run_s = policy.run_s;
  }
  return policy;
}

Result<TuneReport> TuneCommand::tune(Job& job, const TrafficFlags::Values& traffic,
                                     std::optional<uint64_t> memory_bytes, double budget_s,
                                     std::stop_token stop) {
  MOETUNE_ASSIGN_OR_RETURN(Buckets buckets, Buckets::from(traffic.tokens));
  TuneRequest request = job.session->request(std::move(buckets));
  request.workload = traffic.workloads.front();
  request.budget_s = budget_s;
  request.candidate_budget_s = candidate_budget_s_;
  request.seed = traffic.seed;
  if (memory_bytes) request.limits = fmt::format("memory={}", *memory_bytes);
  if (const std::string text = imported_.text(); !text.empty())
    request.limits += (request.limits.empty() ? "" : " ") + text;
  MOETUNE_RETURN_IF_ERROR(imported_.suggest(request));
  request.stop = std::move(stop);
  const auto own_store = make_memory_store();  // Where no journal is kept.
  request.store = journal_.store() != nullptr ? journal_.store() : own_store.get();
  stop_helpers_on(job, request.stop);
  Progress progress;
  progress.show({"preparing", 0, budget_s});
  request.progress = [&progress](const TuneProgress& tuning) { progress.show(state_of(tuning)); };
  Result<TuneReport> report = job.tuner->tune(request);
  job.session->executor().unload();
  if (Executor* exact = job.session->exact_executor()) exact->unload();
  if (const std::string trouble = trouble_of(job); report.ok() && !trouble.empty())
    report->warnings.push_back(trouble);
  if (report.ok()) {
    put_host(report->plan, job.hosts);
    for (const TunableRunner* runner : job.session->runners()) {
      if (std::string words = hosted_trouble(*runner); !words.empty())
        report->warnings.push_back(std::move(words));
    }
    for (std::string& line : imported_.compare_with_default(request, *request.store))
      report->warnings.push_back(std::move(line));
  }
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

void TuneCommand::find_ceilings(Job& job, TuneOutcome& outcome, Output& output) {
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
  const Result<Ceilings> measured = measure_ceilings(job, output);
  if (!measured.ok()) return output.note(fmt::format("no ceilings: {}", measured.error().message));
  outcome.ceilings = *measured;
  if (journal == nullptr) return;
  journal->put_ceiling({device, what, static_cast<int64_t>(measured->read_bytes),
                        measured->read_bytes_per_s, measured->read_name, measured->operations_per_s,
                        measured->operations_name, journal::unix_ms_now()});
}

Result<Exit> TuneCommand::run(Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const double budget_s, parse_duration("--budget", budget_));
  MOETUNE_ASSIGN_OR_RETURN(const WorkerPolicy policy, read_limits());
  MOETUNE_ASSIGN_OR_RETURN(const TrafficFlags::Values traffic, traffic_.read(/*many=*/false));
  MOETUNE_ASSIGN_OR_RETURN(const DeviceFlags::Values device, device_.read());
  MOETUNE_ASSIGN_OR_RETURN(const LayerFlags::Layer layer, layer_.read());
  MOETUNE_ASSIGN_OR_RETURN(const Where where, parse_isolation(isolation_));
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<HostChoice> hosts, hosts_.read());
  MOETUNE_ASSIGN_OR_RETURN(imported_, ImportedTable::read(import_));
  if (!out_.empty()) MOETUNE_RETURN_IF_ERROR(check_can_write(out_));
  const Interrupts interrupts;
  MOETUNE_ASSIGN_OR_RETURN(Job job,
                           open_job(layer, device, traffic.seed, Purpose::kMeasure, output, where,
                                    {.deterministic = deterministic_}, policy,
                                    {.hosts = hosts, .suggested = imported_.suggestions()}));
  MOETUNE_ASSIGN_OR_RETURN(
      const std::string path,
      prepare_output(out_, usual_config_path(job.device(), hosts), job.device()));
  MOETUNE_RETURN_IF_ERROR(journal_.open(traffic.workloads.front(), job.device(), output));

  TuneOutcome outcome{.budget_s = budget_s,
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
    const TuneRow& row = outcome.rows.emplace_back(row_of(decision, *job.session, traffic.seed));
    raise_to_seen(outcome.ceilings, row.work, row.tuned_us);
  }
  for (TuneRow& row : outcome.rows)
    row.roofline = roofline(row.work, outcome.ceilings, row.tuned_us);
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

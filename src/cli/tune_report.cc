#include "cli/tune_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/rejected.h"
#include "cli/table.h"
#include "cli/values.h"
#include "cli/version.h"
#include "journal/place.h"

namespace moetune::cli {
namespace {

Json or_null(double value) { return value > 0 ? Json(value) : Json(); }

Json describe(const TuneRow& row) {
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

std::string speedup_text(const TuneRow& row) {
  if (row.decision->is_default) return "1";
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", row.speedup, row.low, row.high);
}

std::string verdict(const Decision& decision) {
  if (!decision.is_default) return "faster";
  return decision.evidence.resolved ? "default best" : "unresolved";
}

std::string table_of(const std::vector<TuneRow>& rows) {
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
  for (const TuneRow& row : rows) {
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
  const bool any_part = std::any_of(
      rows.begin(), rows.end(), [](const TuneRow& row) { return row.decision->evidence.on_part; });
  if (any_part) {
    text +=
        "* calls on the whole layer are dear here: measured on a part of the experts, with as many "
        "rows for each\n";
  }
  return text;
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
std::string earlier_text(const TuneOutcome& outcome) {
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

/// What to do about sizes that time did not suffice for.
std::string unresolved_text(const TuneOutcome& outcome) {
  const auto unresolved =
      std::count_if(outcome.rows.begin(), outcome.rows.end(),
                    [](const TuneRow& row) { return !row.decision->evidence.resolved; });
  if (unresolved == 0 || outcome.report.from_store) return "";
  return fmt::format(
      "{} of {} sizes are unresolved and keep the default: --budget {} {}.\n", unresolved,
      outcome.rows.size(), duration_flag(2 * std::max(outcome.budget_s, 1.0)),
      outcome.journal.empty() ? "may resolve more" : "goes on from here and may resolve more");
}

/// Its last line. The file is always named: `show` alone would look for that of the usual device.
std::string rejected_text(const TuneOutcome& outcome) {
  const std::vector<RejectedCandidate> rejected = collect_rejected(outcome.report.rejected);
  const std::string line = rejected_line(rejected);
  if (rejected.empty()) return line;
  if (outcome.journal.empty()) return line + "; --json lists them";
  return fmt::format("{}; `moetune show {} --rejected{}` lists them", line, outcome.path,
                     outcome.journal == journal::default_path().value_or("")
                         ? ""
                         : " --journal " + outcome.journal);
}

}  // namespace

TuneRow row_of(const Decision& decision, MoeSession& session, uint64_t seed) {
  const Evidence& evidence = decision.evidence;
  TuneRow row{.decision = &decision,
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

Json describe(const TuneOutcome& outcome, const Job& job) {
  const TuneReport& report = outcome.report;
  Json buckets = Json::array();
  for (const TuneRow& row : outcome.rows) buckets.push_back(describe(row));
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

std::string text_of(const TuneOutcome& outcome, const Job& job) {
  const TuneReport& report = outcome.report;
  std::string text =
      fmt::format("{} on {}\n{}\n\n", job.model.name, job.device().name, report.plan.problem.key());
  text += table_of(outcome.rows);
  text += fmt::format("\nWeight layout {}; {} measurements in {:.1f} s.\n", report.plan.layout,
                      report.measurements, report.seconds);
  if (!report.from_store) text += spent_text(report);
  text += earlier_text(outcome);
  text += unresolved_text(outcome);
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

}  // namespace moetune::cli

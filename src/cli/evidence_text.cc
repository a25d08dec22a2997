// A journal's evidence as text and as JSON.

#include <fmt/format.h>

#include <algorithm>

#include "cli/describe.h"
#include "cli/evidence.h"
#include "cli/table.h"
#include "cli/values.h"

namespace moetune::cli {
namespace {

constexpr size_t kShown = 10;

std::string stage_name(const Race& race) {
  if (race.stage < 0) return "whole";
  const std::vector<Candidate::Stage>& stages = race.ranking.front().candidate.stages;
  const auto stage = static_cast<size_t>(race.stage);
  return stage < stages.size() ? stages[stage].name : fmt::format("stage {}", race.stage);
}

const char* scale_text(Scale scale) {
  return scale == Scale::kFull ? "the whole layer" : "a part of the layer";
}

std::string indented(const std::string& text) {
  std::string lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += "      " + text.substr(begin, end - begin) + '\n';
    begin = end + 1;
  }
  return lines;
}

std::string race_text(const Race& race, const Candidate& fallback) {
  const std::string where =
      fmt::format("{}, seed {}, {}", race.workload, race.seed, scale_text(race.scale));
  const std::vector<MeasurementRecord>& ranking = race.ranking;
  const size_t count = ranking.size();
  if (race.stage >= 0) {
    return fmt::format("  raced       {} {} alone: {} to {} ({})\n", count, stage_name(race),
                       time_text(ranking.front().time.median_us),
                       time_text(ranking.back().time.median_us), where);
  }
  using Align = Table::Align;
  Table table({{"median"}, {"quartiles"}, {"samples"}, {"unlike the default", Align::kLeft}});
  for (size_t i = 0; i < std::min(kShown, count); ++i) {
    const TimeSummary& time = ranking[i].time;
    const bool is_default = ranking[i].candidate.text() == fallback.text();
    table.add_row({time_text(time.median_us),
                   fmt::format("{} to {}", time_text(time.q1_us), time_text(time.q3_us)),
                   std::to_string(time.samples),
                   is_default ? "(default)" : difference_text(ranking[i].candidate, fallback)});
  }
  std::string text = fmt::format("  raced       {} as a whole ({})\n", count, where);
  text += indented(table.text());
  if (count > kShown)
    text += fmt::format("      ... and {} slower ones (--json lists all)\n", count - kShown);
  return text;
}

std::string comparison_text(const char* what, const MeasurementRecord& record,
                            const Candidate& fallback) {
  const Comparison& versus = *record.versus;
  const std::string against =
      versus.against == fallback.text() ? "" : fmt::format(" against {}", versus.against);
  return fmt::format(
      "  {:<11} {:.3f}x, interval {:.3f} to {:.3f}, {} rounds at {} tokens of {}: {}"
      "\n      {}{}\n",
      what, versus.speedup, versus.low, versus.high, versus.rounds, record.what.tokens,
      record.what.workload, versus.outcome, difference_text(record.candidate, fallback), against);
}

std::string measurer_text(const Measurer& measurer) {
  std::string with;
  for (const auto& [name, value] : measurer.origin.toolchain)
    with += fmt::format("{}{} {}", with.empty() ? ", " : "; ", name, value);
  return fmt::format("  measured by {}{}: {} records, {} to {}\n", measurer.origin.program, with,
                     measurer.measurements, date_text(measurer.first_unix_ms),
                     date_text(measurer.last_unix_ms));
}

Json describe(const Race& race) {
  Json ranking = Json::array();
  for (const MeasurementRecord& record : race.ranking) {
    ranking.push_back({{"candidate", record.candidate.text()},
                       {"stages", describe_stages(record.candidate)},
                       {"time", cli::describe(record.time)}});
  }
  return {{"stage", stage_name(race)},
          {"workload", race.workload},
          {"seed", race.seed},
          {"on_part", race.scale == Scale::kSubset},
          {"candidates", std::move(ranking)}};
}

Json describe_comparisons(const std::vector<MeasurementRecord>& records) {
  Json list = Json::array();
  for (const MeasurementRecord& record : records) {
    const Comparison& versus = *record.versus;
    list.push_back({{"candidate", record.candidate.text()},
                    {"against", versus.against},
                    {"tokens", record.what.tokens},
                    {"workload", record.what.workload},
                    {"on_part", record.scale == Scale::kSubset},
                    {"time", cli::describe(record.time)},
                    {"against_time", cli::describe(versus.against_time)},
                    {"speedup", versus.speedup},
                    {"speedup_ci", {versus.low, versus.high}},
                    {"rounds", versus.rounds},
                    {"outcome", versus.outcome}});
  }
  return list;
}

Json describe(const Measurer& measurer) {
  Json toolchain = Json::object();
  for (const auto& [name, value] : measurer.origin.toolchain) toolchain[name] = value;
  return {{"program", measurer.origin.program},
          {"toolchain", std::move(toolchain)},
          {"measurements", measurer.measurements},
          {"first_unix_ms", measurer.first_unix_ms},
          {"last_unix_ms", measurer.last_unix_ms}};
}

}  // namespace

std::string text_of(const JournalEvidence& evidence, const Candidate& fallback) {
  std::string text;
  for (const Race& race : evidence.races) text += race_text(race, fallback);
  text += fmt::format("  rejected    {}", rejected_line(evidence.rejected));
  if (evidence.rejected_elsewhere > 0)
    text += fmt::format("; {} more at other numbers of tokens", evidence.rejected_elsewhere);
  text += '\n';
  if (!evidence.rejected.empty()) text += indented(rejected_table(evidence.rejected, kShown));
  if (!evidence.proven.empty())
    text += fmt::format("  proven      {} right bit for bit on integers\n", evidence.proven.size());
  for (const auto& record : evidence.confirmed)
    text += comparison_text("confirmed", record, fallback);
  for (const auto& record : evidence.vetoes) text += comparison_text("veto", record, fallback);
  for (const auto& record : evidence.intervals)
    text += comparison_text("interval", record, fallback);
  for (const Measurer& measurer : evidence.measurers) text += measurer_text(measurer);
  if (evidence.of_other_versions > 0) {
    text += fmt::format("  left out    {} records of other versions of the runner\n",
                        evidence.of_other_versions);
  }
  return text;
}

Json describe(const JournalEvidence& evidence) {
  Json races = Json::array();
  for (const Race& race : evidence.races) races.push_back(describe(race));
  Json measurers = Json::array();
  for (const Measurer& measurer : evidence.measurers) measurers.push_back(describe(measurer));
  return {{"races", std::move(races)},
          {"rejected", cli::describe(evidence.rejected)},
          {"rejected_elsewhere", evidence.rejected_elsewhere},
          {"proven", evidence.proven},
          {"confirmed", describe_comparisons(evidence.confirmed)},
          {"vetoes", describe_comparisons(evidence.vetoes)},
          {"intervals", describe_comparisons(evidence.intervals)},
          {"measured_by", std::move(measurers)},
          {"of_other_versions", evidence.of_other_versions}};
}

}  // namespace moetune::cli

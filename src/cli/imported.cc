#include "cli/imported.h"

#include <fmt/format.h>

#include <utility>

#include "base/hash.h"
#include "base/status_macros.h"
#include "cli/describe.h"

namespace moetune::cli {
namespace {

// What the table has for a bucket, of the first runner that can run it.
std::optional<Candidate> candidate_at(const exchange::TritonTable& table, int64_t tokens,
                                      std::span<TunableRunner* const> runners) {
  for (const TunableRunner* runner : runners) {
    if (auto candidate = suggested_candidate(*runner, {tokens, table.nearest(tokens).tactic}))
      return candidate;
  }
  return std::nullopt;
}

// The latest of a candidate's records at a bucket, and the default's from a race at its scale.
struct Raced {
  const MeasurementRecord* record = nullptr;
  const MeasurementRecord* fallback = nullptr;
};

Raced find_raced(const std::vector<MeasurementRecord>& records, const TuneRequest& request,
                 int64_t tokens, const Candidate& candidate, const Candidate& fallback) {
  Raced found;
  const Case here{tokens, request.workload, request.seed};
  const auto is_race = [&](const MeasurementRecord& record) {
    return record.what == here && record.stage < 0 &&
           (record.phase == "race" || record.phase == "settled");
  };
  for (const MeasurementRecord& record : records) {
    const bool is_out = record.what == here && !record.rejected.empty();
    if (record.candidate == candidate && (is_race(record) || is_out)) found.record = &record;
  }
  for (const MeasurementRecord& record : records) {
    if (found.record != nullptr && is_race(record) && record.scale == found.record->scale &&
        record.candidate == fallback && record.time.samples > 0)
      found.fallback = &record;
  }
  return found;
}

}  // namespace

bool is_shown_slower(const TimeSummary& time, const TimeSummary& fallback) {
  constexpr double kSlower = 1.01;
  return time.median_us > kSlower * fallback.median_us && time.q1_us > fallback.q3_us;
}

Result<ImportedTable> ImportedTable::read(const std::string& path) {
  ImportedTable imported;
  if (path.empty()) return imported;
  imported.path_ = path;
  MOETUNE_ASSIGN_OR_RETURN(imported.table_, exchange::read_triton_table(path));
  return imported;
}

std::vector<Suggestion> ImportedTable::suggestions() const {
  std::vector<Suggestion> all;
  if (!table_) return all;
  for (const auto& entry : table_->entries) all.push_back({entry.tokens, entry.tactic});
  return all;
}

Status ImportedTable::suggest(TuneRequest& request) const {
  if (!table_) return {};
  for (const int64_t tokens : request.buckets.sizes()) {
    if (auto candidate = candidate_at(*table_, tokens, request.runners))
      request.suggestions[tokens].push_back(*std::move(candidate));
  }
  if (!request.suggestions.empty()) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: no kernel that takes part has its parameters ({})", path_,
                           table_->entries.front().tactic.text()),
               "tune the engine that the file is for, as in --host vllm"};
}

std::vector<std::string> ImportedTable::compare_with_default(const TuneRequest& request,
                                                             MeasurementStore& store) const {
  std::vector<std::string> lines;
  if (!table_) return lines;
  const auto records = store.find(request.problem.key(), request.device.key());
  if (!records.ok()) return lines;
  for (const int64_t tokens : request.buckets.sizes()) {
    const auto candidate = candidate_at(*table_, tokens, request.runners);
    const Candidate fallback = request.runners[0]->default_candidate(tokens);
    if (!candidate || *candidate == fallback) continue;
    const Raced raced = find_raced(*records, request, tokens, *candidate, fallback);
    if (raced.record == nullptr) continue;
    if (!raced.record->rejected.empty()) {
      lines.push_back(fmt::format("{}: its tactic for {} tokens is out: {}", path_, tokens,
                                  raced.record->rejected));
    } else if (raced.fallback != nullptr &&
               is_shown_slower(raced.record->time, raced.fallback->time)) {
      const double us = raced.record->time.median_us;
      const double default_us = raced.fallback->time.median_us;
      lines.push_back(fmt::format(
          "{}: its tactic for {} tokens takes {:.2f} times as long as the default ({} against {})",
          path_, tokens, us / default_us, time_text(us), time_text(default_us)));
    }
  }
  return lines;
}

std::string ImportedTable::text() const {
  if (!table_) return {};
  Hash64 hash;
  for (const auto& entry : table_->sorted())
    hash.add(fmt::format("{} {}", entry.tokens, entry.tactic.text()));
  return fmt::format("import={:016x}", hash.value());
}

}  // namespace moetune::cli

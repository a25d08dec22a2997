#include "cli/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/status_macros.h"
#include "journal/contents.h"

namespace moetune::cli {
namespace {

using Latest = std::map<std::string, const JournalRecord*>;

/// Records with the same key measured the same thing.
std::string key_of(const MeasurementRecord& record) {
  return fmt::format("{}@{}|{}|{}|{}|{}|{}|{}|{}|{}", record.candidate.text(),
                     record.candidate.runner_version, record.what.tokens, record.what.workload,
                     record.what.seed, static_cast<int>(record.scale), record.stage, record.phase,
                     record.versus ? record.versus->against : "", !record.rejected.empty());
}

class Collector {
 public:
  Collector(const EvidencePlace& place, const std::map<std::string, int>& versions)
      : place_(place), versions_(versions) {}

  void add(const JournalRecord& record) {
    const MeasurementRecord& measured = record.measured;
    const bool is_rejection = !measured.rejected.empty();
    const bool is_here = measured.what.tokens == place_.tokens;
    const bool is_interval = measured.phase == "interval" && measured.versus.has_value() &&
                             place_.from <= measured.what.tokens &&
                             measured.what.tokens <= place_.to;
    if (!is_here && !is_interval && !is_rejection) return;
    const auto version = versions_.find(measured.candidate.runner);
    if (version == versions_.end() || version->second != measured.candidate.runner_version) {
      ++found_.of_other_versions;
      return;
    }
    if (is_rejection) (is_here ? rejected_here_ : rejected_elsewhere_).push_back(measured);
    if (!is_here && !is_interval) return;
    count(record);
    if (!is_rejection) latest_[key_of(measured)] = &record;
  }

  JournalEvidence finish() && {
    found_.rejected = collect_rejected(rejected_here_);
    std::set<std::string> elsewhere;
    for (const MeasurementRecord& record : rejected_elsewhere_)
      elsewhere.insert(record.candidate.text());
    for (const MeasurementRecord& record : rejected_here_) elsewhere.erase(record.candidate.text());
    found_.rejected_elsewhere = static_cast<int>(elsewhere.size());
    for (const auto& [key, record] : latest_) sort_in(record->measured);
    for (auto& [where, race] : races_) {
      std::stable_sort(race.ranking.begin(), race.ranking.end(), [](const auto& a, const auto& b) {
        return a.time.median_us < b.time.median_us;
      });
      found_.races.push_back(std::move(race));
    }
    return std::move(found_);
  }

 private:
  void count(const JournalRecord& record) {
    const int64_t at = record.measured.unix_ms;
    auto known = std::find_if(found_.measurers.begin(), found_.measurers.end(),
                              [&](const Measurer& m) { return m.origin == record.origin; });
    if (known == found_.measurers.end())
      known = found_.measurers.insert(known, {record.origin, 0, at, at});
    ++known->measurements;
    known->first_unix_ms = std::min(known->first_unix_ms, at);
    known->last_unix_ms = std::max(known->last_unix_ms, at);
  }

  void sort_in(const MeasurementRecord& record) {
    if (record.phase == "race" && record.time.samples > 0) {
      Race& race = races_[{record.stage, record.scale, record.what.workload, record.what.seed}];
      race.workload = record.what.workload;
      race.seed = record.what.seed;
      race.scale = record.scale;
      race.stage = record.stage;
      race.ranking.push_back(record);
    }
    if (record.phase == "exact") found_.proven.insert(record.candidate.text());
    if (!record.versus) return;
    if (record.phase == "confirm") found_.confirmed.push_back(record);
    if (record.phase == "veto") found_.vetoes.push_back(record);
    if (record.phase == "interval") found_.intervals.push_back(record);
  }

  const EvidencePlace& place_;
  const std::map<std::string, int>& versions_;
  JournalEvidence found_;
  Latest latest_;
  std::vector<MeasurementRecord> rejected_here_;
  std::vector<MeasurementRecord> rejected_elsewhere_;
  std::map<std::tuple<int, Scale, std::string, uint64_t>, Race> races_;
};

}  // namespace

Result<std::vector<JournalRecord>> records_of(journal::Database& journal,
                                              const std::string& problem,
                                              const std::string& device) {
  std::vector<JournalRecord> records;
  const auto keep = [&](const MeasurementRecord& record, const journal::Origin& origin) -> Status {
    // The filter takes keys that have these texts in them.
    if (record.problem == problem && record.device == device) records.push_back({record, origin});
    return {};
  };
  MOETUNE_RETURN_IF_ERROR(
      journal::visit_measurements(journal, {.problem = problem, .device = device}, keep));
  return records;
}

JournalEvidence evidence_at(std::span<const JournalRecord> records, const EvidencePlace& place,
                            const std::map<std::string, int>& versions) {
  Collector collector(place, versions);
  for (const JournalRecord& record : records) collector.add(record);
  return std::move(collector).finish();
}

}  // namespace moetune::cli

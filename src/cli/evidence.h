// What a journal has to say on one decision: who raced, who was rejected, who was confirmed or
// vetoed, and who measured all that.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/rejected.h"
#include "journal/database.h"
#include "journal/entry.h"
#include "moetune/measuring.h"

namespace moetune::cli {

/// A measurement and who took it.
struct JournalRecord {
  MeasurementRecord measured;
  journal::Origin origin;
};

/// Everything of one problem on one device, oldest first.
Result<std::vector<JournalRecord>> records_of(journal::Database& journal,
                                              const std::string& problem,
                                              const std::string& device);

/// Candidates that were timed on the same traffic, the fastest first.
struct Race {
  std::string workload;
  uint64_t seed = 0;
  Scale scale = Scale::kFull;
  int stage = -1;  ///< -1: the whole operator.
  std::vector<MeasurementRecord> ranking;
};

/// Who measured, and when.
struct Measurer {
  journal::Origin origin;
  int64_t measurements = 0;
  int64_t first_unix_ms = 0;
  int64_t last_unix_ms = 0;
};

/// A later record of the same thing has taken the place of an earlier one.
struct JournalEvidence {
  std::vector<Race> races;  ///< Of the whole operator first, then by stage.
  std::vector<RejectedCandidate> rejected;
  int rejected_elsewhere = 0;  ///< Candidates that were rejected at other numbers of tokens only.
  std::vector<MeasurementRecord> confirmed;  ///< Comparisons with the default at these tokens, ...
  std::vector<MeasurementRecord> vetoes;     ///< ... the same on other traffic, ...
  std::vector<MeasurementRecord> intervals;  ///< ... and between buckets, where decisions meet.
  std::set<std::string> proven;              ///< Texts of candidates that were right bit for bit.
  std::vector<Measurer> measurers;
  int64_t of_other_versions = 0;  ///< Left out: records of other versions of their runners.

  bool empty() const { return races.empty() && rejected.empty() && confirmed.empty(); }
};

/// Where to look: a bucket, and the interval that its decision holds for.
struct EvidencePlace {
  int64_t tokens = 0;
  int64_t from = 0;
  int64_t to = 0;
};

/// What the records say there. `versions`: today's runners, by name; records of other ones are left
/// out and counted.
JournalEvidence evidence_at(std::span<const JournalRecord> records, const EvidencePlace& place,
                            const std::map<std::string, int>& versions);

/// For people: the fastest ten of a race, the first ten rejected. `fallback`: the default there.
std::string text_of(const JournalEvidence& evidence, const Candidate& fallback);
/// All of it.
Json describe(const JournalEvidence& evidence);

}  // namespace moetune::cli

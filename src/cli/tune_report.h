// What `moetune tune` prints when it is done: rows of a table, and the object of --json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/describe.h"
#include "cli/job.h"
#include "engine/backend.h"
#include "moetune/autotuner.h"

namespace moetune::cli {

/// One decision as it is reported.
struct TuneRow {
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

TuneRow row_of(const Decision& decision, MoeSession& session, uint64_t seed);

/// What a run found out and where it went.
struct TuneOutcome {
  TuneReport report;
  double budget_s = 0;
  Ceilings ceilings;
  int64_t ceilings_unix_ms = 0;  ///< When they were measured; 0: in this run, or not at all.
  std::vector<TuneRow> rows;     ///< Of report.plan's decisions.
  std::string path;
  bool saved = false;
  std::string journal;  ///< "" where none is kept.
  bool deterministic = false;
};

Json describe(const TuneOutcome& outcome, const Job& job);
std::string text_of(const TuneOutcome& outcome, const Job& job);

}  // namespace moetune::cli

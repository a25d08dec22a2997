// Runs as rows of the table `run`.
#pragma once

#include <string>
#include <vector>

#include "journal/entry.h"
#include "journal/sqlite.h"

namespace moetune::journal {

/// "SELECT ...": add "FROM run m ..." with `p` and `d` for the names of problem and device.
inline constexpr const char* kRunColumns =
    "m.token, p.key, d.key, m.unix_ms, m.workload, m.seed, m.terms, m.runners, m.buckets,"
    " m.seconds, m.budget_s";
inline constexpr int kRunColumnCount = 11;

/// The row that a statement stands at, whose first columns are kRunColumns. kParse where it is none
/// that was ever written.
Result<TuneRun> run_of(const Statement& row);

/// The columns `runners` and `buckets`, and back. kParse for what was never written there.
std::string runners_text(const TuneRun& run);
std::string buckets_text(const TuneRun& run);
Status read_runners(const std::string& text, TuneRun& run);
Status read_buckets(const std::string& text, TuneRun& run);

}  // namespace moetune::journal

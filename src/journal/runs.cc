#include "journal/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/status_macros.h"
#include "journal/database.h"
#include "tuner/configuration.h"

namespace moetune::journal {
namespace {

// SQLite would keep a NaN as NULL.
double storable(double value) { return std::isfinite(value) ? value : 0; }

Result<Plan> read_plan(const std::string& text) {
  MOETUNE_ASSIGN_OR_RETURN(const Json document, parse_json(text, "plan"));
  JsonReader reader(document, "plan");
  Plan plan = plan_from_json(reader, document);
  if (!reader.ok()) return reader.error();
  return plan;
}

}  // namespace

std::string runners_text(const TuneRun& run) { return print_json_line(Json(run.runners)); }

std::string buckets_text(const TuneRun& run) { return print_json_line(Json(run.buckets)); }

Status read_runners(const std::string& text, TuneRun& run) {
  MOETUNE_ASSIGN_OR_RETURN(const Json list, parse_json(text, "runners"));
  if (!list.is_array()) return Error{ErrorCode::kParse, "runners: no list"};
  for (const Json& runner : list) {
    if (!runner.is_string()) return Error{ErrorCode::kParse, "runners: not a text"};
    run.runners.push_back(runner.get<std::string>());
  }
  std::sort(run.runners.begin(), run.runners.end());
  return {};
}

Status read_buckets(const std::string& text, TuneRun& run) {
  MOETUNE_ASSIGN_OR_RETURN(const Json list, parse_json(text, "buckets"));
  if (!list.is_array()) return Error{ErrorCode::kParse, "buckets: no list"};
  for (const Json& bucket : list) {
    const int64_t tokens = bucket.is_number_integer() ? bucket.get<int64_t>() : 0;
    if (tokens < 1) return Error{ErrorCode::kParse, "buckets: not a number above 0"};
    run.buckets.push_back(tokens);
  }
  std::sort(run.buckets.begin(), run.buckets.end());
  return {};
}

Result<TuneRun> run_of(const Statement& row) {
  TuneRun run;
  run.id = row.number(0);
  run.problem = row.text(1);
  run.device = row.text(2);
  run.unix_ms = row.number(3);
  run.workload = row.text(4);
  run.seed = static_cast<uint64_t>(row.number(5));
  run.terms = row.text(6);
  MOETUNE_RETURN_IF_ERROR(read_runners(row.text(7), run));
  MOETUNE_RETURN_IF_ERROR(read_buckets(row.text(8), run));
  run.seconds = row.real(9);
  run.budget_s = row.real(10);
  return run;
}

Status Database::put_run(const TuneRun& run, const Origin& origin) {
  return in_transaction([&]() -> Status {
    MOETUNE_ASSIGN_OR_RETURN(const References references,
                             references_of(run.problem, run.device, origin));
    int64_t plan = 0;
    if (run.plan) {
      MOETUNE_RETURN_IF_ERROR(insert_plan({*run.plan, run.properties, unix_ms_now()}, references,
                                          print_json_line(plan_to_json(*run.plan))));
      plan = connection_.last_id();
    }
    return upsert_run(run, references, plan);
  });
}

Status Database::upsert_run(const TuneRun& run, const References& references, int64_t plan) {
  if (put_run_.is_empty()) {
    MOETUNE_ASSIGN_OR_RETURN(
        put_run_,
        connection_.prepare("INSERT INTO run (token, problem, device, origin, unix_ms, workload,"
                            " seed, terms, runners, buckets, seconds, budget_s, plan)"
                            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULLIF(?, 0))"
                            " ON CONFLICT (token) DO UPDATE SET seconds = excluded.seconds,"
                            " budget_s = excluded.budget_s, plan = excluded.plan"));
  }
  put_run_.bind(run.id).bind(references.problem).bind(references.device).bind(references.origin);
  put_run_.bind(run.unix_ms).bind(run.workload).bind(static_cast<int64_t>(run.seed));
  put_run_.bind(run.terms).bind(runners_text(run)).bind(buckets_text(run));
  put_run_.bind(storable(run.seconds)).bind(storable(run.budget_s)).bind(plan);
  return put_run_.run();
}

Result<std::vector<TuneRun>> Database::find_runs(const std::string& problem,
                                                 const std::string& device) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row, connection_.prepare(fmt::format(
                         "SELECT {}, plan.plan FROM run m JOIN problem p ON p.id = m.problem"
                         " JOIN device d ON d.id = m.device LEFT JOIN plan ON plan.id = m.plan"
                         " WHERE p.key = ? AND d.key = ? ORDER BY COALESCE(m.plan, 0), m.id",
                         kRunColumns)));
  row.bind(problem).bind(device);
  std::vector<TuneRun> runs;
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
    if (!is_row) return runs;
    MOETUNE_ASSIGN_OR_RETURN(TuneRun run, run_of(row));
    if (!row.is_null(kRunColumnCount)) {
      MOETUNE_ASSIGN_OR_RETURN(run.plan, read_plan(row.text(kRunColumnCount)));
    }
    runs.push_back(std::move(run));
  }
}

Result<bool> Database::merge_run(const RunRecord& record, const Origin& origin) {
  const TuneRun& run = record.run;
  MOETUNE_ASSIGN_OR_RETURN(const References references,
                           references_of(run.problem, run.device, origin));
  MOETUNE_ASSIGN_OR_RETURN(
      Statement there, connection_.prepare("SELECT 1 FROM run WHERE token = ?"
                                           " AND (plan IS NOT NULL OR (? = 0 AND seconds >= ?))"));
  there.bind(run.id).bind(record.plan_unix_ms).bind(run.seconds);
  MOETUNE_ASSIGN_OR_RETURN(const bool is_there, there.step());
  if (is_there) return false;
  MOETUNE_ASSIGN_OR_RETURN(
      Statement plan,
      connection_.prepare("SELECT id FROM plan WHERE problem = ? AND device = ? AND unix_ms = ?"));
  plan.bind(references.problem).bind(references.device).bind(record.plan_unix_ms);
  MOETUNE_ASSIGN_OR_RETURN(const bool has_plan, plan.step());
  MOETUNE_RETURN_IF_ERROR(upsert_run(run, references, has_plan ? plan.number(0) : 0));
  return true;
}

}  // namespace moetune::journal

#include "journal/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/status_macros.h"
#include "journal/rows.h"
#include "journal/runs.h"
#include "tuner/configuration.h"

namespace moetune::journal {
namespace {

constexpr std::array kOutcomes = {"better", "not_better", "no_loss", "loss", "unresolved"};
// The end of the year 9999. What is dated at the end of all time is before no time that a filter
// can name: it would be neither listed nor exported, and no prune would ever take it.
constexpr int64_t kLastUnixMs = 253402300799999;

Json state_to_json(const DeviceState& state) {
  return Json{{"clock_mhz", state.clock_mhz},
              {"throttle_reasons", state.throttle_reasons},
              {"temperature_c", state.temperature_c},
              {"power_w", std::isfinite(state.power_w) ? state.power_w : 0}};
}

void read_state(JsonReader& reader, DeviceState& state) {
  reader.optional("clock_mhz", state.clock_mhz);
  reader.optional("throttle_reasons", state.throttle_reasons);
  reader.optional("temperature_c", state.temperature_c);
  reader.optional("power_w", state.power_w);
}

// An interval that is open on a side has no number there.
Json versus_to_json(const Comparison& versus) {
  Json json = {{"against", versus.against},
               {"against_version", versus.against_version},
               {"against_time", time_to_json(versus.against_time)},
               {"speedup", std::isfinite(versus.speedup) ? versus.speedup : 1}};
  if (versus.low > 0) json["speedup_low"] = versus.low;
  if (std::isfinite(versus.high)) json["speedup_high"] = versus.high;
  json["rounds"] = versus.rounds;
  json["outcome"] = versus.outcome;
  return json;
}

Comparison read_versus(JsonReader& reader) {
  Comparison versus;
  versus.low = 0;
  versus.high = std::numeric_limits<double>::infinity();
  reader.required("against", versus.against);
  reader.optional("against_version", versus.against_version);
  reader.object("against_time", [&](JsonReader& time) { read_time(time, versus.against_time); });
  reader.optional("speedup", versus.speedup);
  reader.optional("speedup_low", versus.low);
  reader.optional("speedup_high", versus.high);
  reader.optional("rounds", versus.rounds);
  reader.required("outcome", versus.outcome);
  if (versus.against.empty()) reader.fail("against", "empty");
  if (versus.speedup <= 0) reader.fail("speedup", "not above 0");
  if (versus.low < 0 || versus.low > versus.high) reader.fail("speedup_low", "no interval");
  if (versus.rounds < 0) reader.fail("rounds", "negative");
  const bool is_known =
      std::find(kOutcomes.begin(), kOutcomes.end(), versus.outcome) != kOutcomes.end();
  if (!is_known) reader.fail("outcome", fmt::format("\"{:.40}\" is none", versus.outcome));
  return versus;
}

void read_time_taken(JsonReader& reader, TimeSummary& time) {
  read_time(reader, time);
  if (time.samples < 0) reader.fail("samples", "negative");
  if (time.samples > 0 && !(time.median_us > 0)) reader.fail("median_us", "not above 0");
}

void read_rejection(JsonReader& reader, MeasurementRecord& record) {
  std::string code = moetune::to_string(ErrorCode::kInternal);
  reader.optional("rejected", record.rejected);
  reader.optional("rejected_as", code);
  const auto known = error_code_named(code);
  if (!known) return reader.fail("rejected_as", fmt::format("\"{:.40}\" is no error code", code));
  record.rejected_as = *known;
}

void read_case(JsonReader& reader, MeasurementRecord& record) {
  std::string scale = to_string(record.scale);
  reader.required("tokens", record.what.tokens);
  reader.optional("workload", record.what.workload);
  reader.optional("seed", record.what.seed);
  reader.optional("scale", scale);
  reader.optional("stage", record.stage);
  reader.required("phase", record.phase);
  if (record.what.tokens < 1) reader.fail("tokens", "less than 1");
  if (record.stage < -1) reader.fail("stage", "less than -1");
  if (record.phase.empty()) reader.fail("phase", "empty");
  const auto known = scale_named(scale);
  if (!known)
    return reader.fail("scale", fmt::format("\"{:.40}\" is neither full nor subset", scale));
  record.scale = *known;
}

void read_date(JsonReader& reader, int64_t& unix_ms) {
  reader.required("unix_ms", unix_ms);
  if (unix_ms < 0) reader.fail("unix_ms", "negative");
  if (unix_ms > kLastUnixMs) reader.fail("unix_ms", "after the year 9999");
}

void add_origin(Json& json, const Origin& origin) {
  json["program"] = origin.program;
  json["toolchain"] = strings_to_json(origin.toolchain);
}

Origin read_origin(JsonReader& reader) {
  Origin origin;
  reader.optional("program", origin.program);
  reader.optional_object("toolchain",
                         [&](JsonReader& names) { origin.toolchain = read_strings(names); });
  return origin;
}

MeasurementRecord read_measurement(JsonReader& reader) {
  MeasurementRecord record;
  reader.required("problem", record.problem);
  reader.required("device", record.device);
  if (record.problem.empty()) reader.fail("problem", "empty");
  if (record.device.empty()) reader.fail("device", "empty");
  read_candidate(reader, record.candidate);
  if (record.candidate.runner.empty()) reader.fail("runner", "empty");
  reader.optional("layout", record.layout);
  read_case(reader, record);
  reader.optional_object("time", [&](JsonReader& time) { read_time_taken(time, record.time); });
  reader.optional_object("state", [&](JsonReader& state) { read_state(state, record.state); });
  read_rejection(reader, record);
  reader.optional_object("versus",
                         [&](JsonReader& versus) { record.versus = read_versus(versus); });
  read_date(reader, record.unix_ms);
  return record;
}

PlanRecord read_plan(JsonReader& reader, const Json& document) {
  PlanRecord record;
  reader.object("device", [&](JsonReader& device) { record.device = device_from_json(device); });
  reader.object("plan",
                [&](JsonReader& plan) { record.plan = plan_from_json(plan, document["plan"]); });
  read_date(reader, record.unix_ms);
  return record;
}

// A list, as the table's column has it.
void read_list(JsonReader& reader, const Json& document, const char* name,
               Status (*read)(const std::string&, TuneRun&), TuneRun& run) {
  const auto list = document.is_object() ? document.find(name) : document.end();
  if (list == document.end()) return reader.fail(name, "missing");
  if (Status status = read(print_json_line(*list), run); !status.ok())
    reader.fail(name, status.error().message);
}

RunRecord read_run(JsonReader& reader, const Json& document) {
  RunRecord record;
  TuneRun& run = record.run;
  reader.required("id", run.id);
  reader.required("problem", run.problem);
  reader.required("device", run.device);
  reader.optional("workload", run.workload);
  reader.optional("seed", run.seed);
  reader.optional("terms", run.terms);
  read_list(reader, document, "runners", read_runners, run);
  read_list(reader, document, "buckets", read_buckets, run);
  reader.optional("seconds", run.seconds);
  reader.optional("budget_s", run.budget_s);
  reader.optional("plan_unix_ms", record.plan_unix_ms);
  read_date(reader, run.unix_ms);
  if (run.id < 1) reader.fail("id", "less than 1");
  if (run.problem.empty()) reader.fail("problem", "empty");
  if (run.device.empty()) reader.fail("device", "empty");
  if (run.seconds < 0) reader.fail("seconds", "negative");
  return record;
}

}  // namespace

std::string to_line(const MeasurementRecord& record, const Origin& origin) {
  const Candidate& candidate = record.candidate;
  Json json = {{"type", "measurement"},
               {"problem", record.problem},
               {"device", record.device},
               {"runner", candidate.runner},
               {"version", candidate.runner_version},
               {"scheme", candidate.scheme},
               {"stages", stages_to_json(candidate)},
               {"layout", record.layout},
               {"tokens", record.what.tokens},
               {"workload", record.what.workload},
               {"seed", record.what.seed},
               {"scale", to_string(record.scale)},
               {"stage", record.stage},
               {"phase", record.phase},
               {"time", time_to_json(record.time)},
               {"state", state_to_json(record.state)}};
  if (!record.rejected.empty()) {
    json["rejected"] = record.rejected;
    json["rejected_as"] = moetune::to_string(record.rejected_as);
  }
  if (record.versus) json["versus"] = versus_to_json(*record.versus);
  json["unix_ms"] = record.unix_ms;
  add_origin(json, origin);
  return print_json_line(json);
}

std::string to_line(const PlanRecord& record, const Origin& origin) {
  Json json = {{"type", "plan"},
               {"device", device_to_json(record.device)},
               {"plan", plan_to_json(record.plan)},
               {"unix_ms", record.unix_ms}};
  add_origin(json, origin);
  return print_json_line(json);
}

std::string to_line(const RunRecord& record, const Origin& origin) {
  const TuneRun& run = record.run;
  Json json = {{"type", "run"},
               {"id", run.id},
               {"problem", run.problem},
               {"device", run.device},
               {"workload", run.workload},
               {"seed", run.seed},
               {"terms", run.terms},
               {"runners", run.runners},
               {"buckets", run.buckets},
               {"seconds", run.seconds},
               {"budget_s", run.budget_s}};
  if (record.plan_unix_ms > 0) json["plan_unix_ms"] = record.plan_unix_ms;
  json["unix_ms"] = run.unix_ms;
  add_origin(json, origin);
  return print_json_line(json);
}

Result<Entry> parse_line(std::string_view line) {
  MOETUNE_ASSIGN_OR_RETURN(const Json document,
                           parse_json(line, "not JSON", {.max_bytes = kMaxLineBytes}));
  JsonReader reader(document, "");
  std::string type;
  reader.required("type", type);
  Entry entry;
  if (type == "measurement") {
    entry.record = read_measurement(reader);
  } else if (type == "plan") {
    entry.record = read_plan(reader, document);
  } else if (type == "run") {
    entry.record = read_run(reader, document);
  } else {
    reader.fail("type", fmt::format("\"{:.40}\" is neither measurement, plan nor run", type));
  }
  entry.origin = read_origin(reader);
  if (!reader.ok()) return reader.error();
  return entry;
}

}  // namespace moetune::journal

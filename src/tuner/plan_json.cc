#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tuner/configuration.h"

namespace moetune {
namespace {

// Far above what tuning makes (a decision per bucket, a stage per kernel), low enough to bound a
// hostile file.
constexpr size_t kMaxDecisions = 4096;
constexpr size_t kMaxStages = 16;

// A microsecond count that is not finite cannot be written as JSON; 0 means unknown.
double finite(double value) { return std::isfinite(value) ? value : 0; }

}  // namespace

Json strings_to_json(const std::map<std::string, std::string>& strings) {
  Json json = Json::object();
  for (const auto& [name, value] : strings) json[name] = value;
  return json;
}

std::map<std::string, std::string> read_strings(JsonReader& reader) {
  std::map<std::string, std::string> strings;
  reader.members([&](const std::string& name, const Json& value) {
    if (value.is_string()) {
      strings[name] = value.get<std::string>();
    } else {
      reader.fail(name, fmt::format("expected a string, found {}", json_kind(value)));
    }
  });
  return strings;
}

Json time_to_json(const TimeSummary& time) {
  return Json{{"median_us", finite(time.median_us)},
              {"min_us", finite(time.min_us)},
              {"q1_us", finite(time.q1_us)},
              {"q3_us", finite(time.q3_us)},
              {"samples", time.samples}};
}

void read_time(JsonReader& reader, TimeSummary& time) {
  for (const auto& [name, value] :
       {std::pair{"median_us", &time.median_us}, std::pair{"min_us", &time.min_us},
        std::pair{"q1_us", &time.q1_us}, std::pair{"q3_us", &time.q3_us}}) {
    reader.optional(name, *value);
    if (*value < 0) reader.fail(name, fmt::format("a negative time, {}", *value));
  }
  reader.optional("samples", time.samples);
}

namespace {

Json evidence_to_json(const Evidence& evidence) {
  return Json{{"chosen", time_to_json(evidence.chosen)},
              {"default", time_to_json(evidence.fallback)},
              {"speedup", finite(evidence.speedup)},
              {"speedup_low", finite(evidence.speedup_low)},
              {"speedup_high", finite(evidence.speedup_high)},
              {"resolved", evidence.resolved},
              {"workload", evidence.workload},
              {"note", evidence.note},
              {"on_part", evidence.on_part},
              {"candidates", evidence.candidates},
              {"rejected", evidence.rejected},
              {"date", evidence.date},
              {"challenger", evidence.challenger}};
}

void read_evidence(JsonReader& reader, Evidence& evidence) {
  reader.optional_object("chosen", [&](JsonReader& time) { read_time(time, evidence.chosen); });
  reader.optional_object("default", [&](JsonReader& time) { read_time(time, evidence.fallback); });
  reader.optional("speedup", evidence.speedup);
  reader.optional("speedup_low", evidence.speedup_low);
  reader.optional("speedup_high", evidence.speedup_high);
  reader.optional("resolved", evidence.resolved);
  reader.optional("workload", evidence.workload);
  reader.optional("note", evidence.note);
  reader.optional("on_part", evidence.on_part);
  reader.optional("candidates", evidence.candidates);
  reader.optional("rejected", evidence.rejected);
  reader.optional("date", evidence.date);
  reader.optional("challenger", evidence.challenger);
}

Json tactic_to_json(const Tactic& tactic) {
  Json json = Json::object();
  for (const auto& [name, value] : tactic.parameters()) {
    std::visit([&, &key = name](const auto& content) { json[key] = content; }, value);
  }
  return json;
}

void read_tactic(JsonReader& reader, Tactic& tactic) {
  reader.members([&](const std::string& name, const Json& value) {
    if (value.is_string()) {
      tactic.set(name, value.get<std::string>());
    } else {
      int64_t number = 0;
      reader.required(name.c_str(), number);
      tactic.set(name, number);
    }
  });
}

}  // namespace

Json stages_to_json(const Candidate& candidate) {
  Json stages = Json::array();
  for (const Candidate::Stage& stage : candidate.stages) {
    stages.push_back(Json{{"name", stage.name}, {"tactic", tactic_to_json(stage.tactic)}});
  }
  return stages;
}

void read_stages(JsonReader& reader, Candidate& candidate) {
  reader.objects("stages", kMaxStages, [&](JsonReader& item) {
    Candidate::Stage& stage = candidate.stages.emplace_back();
    item.required("name", stage.name);
    item.object("tactic", [&](JsonReader& tactic) { read_tactic(tactic, stage.tactic); });
  });
}

void read_candidate(JsonReader& reader, Candidate& candidate) {
  int64_t version = 0;
  reader.required("runner", candidate.runner);
  reader.required("version", version);
  candidate.runner_version = static_cast<int>(version);
  if (version != candidate.runner_version) reader.fail("version", "out of range");
  reader.required("scheme", candidate.scheme);
  read_stages(reader, candidate);
}

namespace {

Json known_decision_to_json(const Decision& decision) {
  return Json{{"tokens", decision.tokens},
              {"from", decision.from},
              {"to", decision.to},
              {"default", decision.is_default},
              {"runner", decision.candidate.runner},
              {"version", decision.candidate.runner_version},
              {"scheme", decision.candidate.scheme},
              {"stages", stages_to_json(decision.candidate)},
              {"evidence", evidence_to_json(decision.evidence)}};
}

Json decision_to_json(const Decision& decision) {
  Json json = known_decision_to_json(decision);
  restore_extra(json, decision.extra_json);
  return json;
}

Decision read_decision(JsonReader& reader, const Json& value) {
  Decision decision;
  reader.required("tokens", decision.tokens);
  reader.required("from", decision.from);
  reader.required("to", decision.to);
  reader.required("default", decision.is_default);
  read_candidate(reader, decision.candidate);
  reader.optional_object("evidence",
                         [&](JsonReader& evidence) { read_evidence(evidence, decision.evidence); });
  if (decision.tokens < 1) reader.fail("tokens", "less than 1");
  if (reader.ok()) decision.extra_json = extra_of(value, known_decision_to_json(decision));
  return decision;
}

// Without its decisions, which keep their own unknown fields.
Json known_plan_head_to_json(const Plan& plan) {
  return Json{{"problem", Json{{"op", plan.problem.op},
                               {"attributes", strings_to_json(plan.problem.attributes)}}},
              {"runner", plan.runner},
              {"layout", plan.layout},
              {"max_tokens", plan.max_tokens},
              {"deterministic", plan.deterministic},
              {"decisions", nullptr}};
}

}  // namespace

void restore_extra(Json& document, const std::string& extra_json) {
  if (extra_json.empty()) return;
  if (const Result<Json> extra = parse_json(extra_json, "extra_json"); extra.ok()) {
    json_restore(document, *extra);
  }
}

std::string extra_of(const Json& document, const Json& known) {
  const Json unknown = json_unknown(document, known);
  if (unknown.is_null()) return {};
  // In alphabetical order, so that the same fields are the same text wherever a file had them.
  return nlohmann::json(unknown).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Json device_to_json(const DeviceProperties& device) {
  return Json{{"kind", device.kind},
              {"name", device.name},
              {"identity", strings_to_json(device.identity)},
              {"toolchain", strings_to_json(device.toolchain)}};
}

DeviceProperties device_from_json(JsonReader& reader) {
  DeviceProperties device;
  reader.required("kind", device.kind);
  reader.optional("name", device.name);
  reader.object("identity", [&](JsonReader& names) { device.identity = read_strings(names); });
  reader.optional_object("toolchain",
                         [&](JsonReader& names) { device.toolchain = read_strings(names); });
  return device;
}

Json plan_to_json(const Plan& plan) {
  Json json = known_plan_head_to_json(plan);
  // Most plans were not; a file from before there was this field stays as it is.
  if (!plan.deterministic) json.erase("deterministic");
  Json& decisions = json["decisions"] = Json::array();
  for (const Decision& decision : plan.decisions) decisions.push_back(decision_to_json(decision));
  restore_extra(json, plan.extra_json);
  return json;
}

Plan plan_from_json(JsonReader& reader, const Json& value) {
  Plan plan;
  reader.object("problem", [&](JsonReader& problem) {
    problem.required("op", plan.problem.op);
    problem.object("attributes", [&](JsonReader& attributes) {
      plan.problem.attributes = read_strings(attributes);
    });
  });
  reader.required("runner", plan.runner);
  reader.required("layout", plan.layout);
  reader.required("max_tokens", plan.max_tokens);
  reader.optional("deterministic", plan.deterministic);
  reader.objects("decisions", kMaxDecisions, [&](JsonReader& item) {
    plan.decisions.push_back(read_decision(item, value["decisions"][plan.decisions.size()]));
  });
  if (!reader.ok()) return plan;
  plan.extra_json = extra_of(value, known_plan_head_to_json(plan));
  if (Status covered = plan.check_coverage(); !covered.ok()) {
    reader.fail("", covered.error().message);
  }
  return plan;
}

}  // namespace moetune

#include "tuner/candidate_json.h"

#include <fmt/format.h>

#include <variant>

namespace moetune {
namespace {

// Far above one per kernel, low enough to bound a hostile file.
constexpr size_t kMaxStages = 16;

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

Json strings_to_json(const std::map<std::string, std::string>& strings) {
  Json json = Json::object();
  for (const auto& [name, value] : strings) json[name] = value;
  return json;
}

std::map<std::string, std::string> strings_from_json(JsonReader& reader) {
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

Json stages_to_json(const Candidate& candidate) {
  Json stages = Json::array();
  for (const Candidate::Stage& stage : candidate.stages) {
    stages.push_back(Json{{"name", stage.name}, {"tactic", tactic_to_json(stage.tactic)}});
  }
  return stages;
}

Json candidate_to_json(const Candidate& candidate) {
  return Json{{"runner", candidate.runner},
              {"version", candidate.runner_version},
              {"scheme", candidate.scheme},
              {"stages", stages_to_json(candidate)}};
}

void read_candidate(JsonReader& reader, Candidate& candidate) {
  int64_t version = 0;
  reader.required("runner", candidate.runner);
  reader.required("version", version);
  candidate.runner_version = static_cast<int>(version);
  if (version != candidate.runner_version) reader.fail("version", "out of range");
  reader.required("scheme", candidate.scheme);
  reader.objects("stages", kMaxStages, [&](JsonReader& item) {
    Candidate::Stage& stage = candidate.stages.emplace_back();
    item.required("name", stage.name);
    item.object("tactic", [&](JsonReader& tactic) { read_tactic(tactic, stage.tactic); });
  });
}

}  // namespace moetune

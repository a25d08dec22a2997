// The tuned configuration as JSON values; docs/configuration-file.md describes the format. Files
// and merging are in configuration_file.cc.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "moetune/plan.h"

namespace moetune {

/// A plan as the file has it, its unknown fields restored.
Json plan_to_json(const Plan& plan);

/// Reads what plan_to_json() wrote; errors stay in the reader. `value` is the object that the
/// reader reads.
Plan plan_from_json(JsonReader& reader, const Json& value);

Json device_to_json(const DeviceProperties& device);
DeviceProperties device_from_json(JsonReader& reader);

// The parts of a plan, for other documents that hold them. Readers keep errors.
Json strings_to_json(const std::map<std::string, std::string>& strings);
std::map<std::string, std::string> read_strings(JsonReader& reader);
Json time_to_json(const TimeSummary& time);
void read_time(JsonReader& reader, TimeSummary& time);
/// [{"name", "tactic": {...}}]
Json stages_to_json(const Candidate& candidate);
/// The field "stages".
void read_stages(JsonReader& reader, Candidate& candidate);
/// The fields "runner", "version", "scheme" and "stages".
void read_candidate(JsonReader& reader, Candidate& candidate);

/// Puts back what `extra_json` (a field of that name in a plan, decision or configuration) holds.
void restore_extra(Json& document, const std::string& extra_json);

/// The value of an extra_json field: what `document` has and `known` has not; "" for nothing.
std::string extra_of(const Json& document, const Json& known);

}  // namespace moetune

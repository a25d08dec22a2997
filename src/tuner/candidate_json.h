// Candidates and names with values as JSON, the same in every file and message.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "moetune/tactic.h"

namespace moetune {

/// {"name": value, ...}; the inverse fails the reader for a value that is no string.
Json strings_to_json(const std::map<std::string, std::string>& strings);
std::map<std::string, std::string> strings_from_json(JsonReader& reader);

/// [{"name", "tactic": {parameter: number or word, ...}}, ...]
Json stages_to_json(const Candidate& candidate);

/// {"runner", "version", "scheme", "stages"}
Json candidate_to_json(const Candidate& candidate);
/// Reads those fields from an object that may have others; what is wrong fails the reader.
void read_candidate(JsonReader& reader, Candidate& candidate);

}  // namespace moetune

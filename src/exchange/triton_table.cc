#include "exchange/triton_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace moetune::exchange {
namespace {

constexpr size_t kMaxTableBytes = size_t{1} << 20;
constexpr size_t kMaxParameters = 64;
constexpr const char* kTritonVersion = "triton_version";
constexpr const char* kHint =
    "a tuning file looks like {\"64\": {\"BLOCK_SIZE_M\": 16, \"BLOCK_SIZE_N\": 64, "
    "\"BLOCK_SIZE_K\": 128, \"GROUP_SIZE_M\": 1, \"num_warps\": 4, \"num_stages\": 3}}";

Error bad_table(const std::string& origin, std::string_view what) {
  return {ErrorCode::kParse, fmt::format("{}: {}", origin, what), kHint};
}

/// A value as a message shows it.
std::string shown(const Json& value) {
  if (value.is_number()) return value.dump();
  return json_kind(value);
}

Result<int64_t> read_tokens(const std::string& key, const std::string& origin) {
  int64_t tokens = 0;
  const char* const end = key.data() + key.size();
  const auto [at, error] = std::from_chars(key.data(), end, tokens);
  if (error == std::errc() && at == end && tokens >= 1) return tokens;
  return bad_table(origin, fmt::format("\"{}\" is no number of tokens, which begin at 1",
                                       std::string_view(key).substr(0, 60)));
}

bool is_block_size(std::string_view name) {
  return name.starts_with("BLOCK_SIZE_") || name == "GROUP_SIZE_M";
}

Result<ParameterValue> read_value(const std::string& name, const Json& value,
                                  const std::string& place) {
  if (value.is_boolean()) return ParameterValue(int64_t{value.get<bool>()});
  if (value.is_string() && !is_block_size(name)) return ParameterValue(value.get<std::string>());
  const int64_t least = is_block_size(name) || name.starts_with("num_") ? 1 : 0;
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()});
  if (fits && value.get<int64_t>() >= least) return ParameterValue(value.get<int64_t>());
  return bad_table(
      place, fmt::format("expected {}, found {}",
                         least == 1 ? "a positive integer" : "an integer from 0 on", shown(value)));
}

Result<Tactic> read_tactic(const Json& entry, const std::string& place) {
  if (!entry.is_object())
    return bad_table(place, fmt::format("expected an object, found {}", shown(entry)));
  if (entry.size() > kMaxParameters)
    return bad_table(place, fmt::format("more than {} parameters", kMaxParameters));
  Tactic tactic;
  for (const auto& [name, value] : entry.items()) {
    const std::string here = fmt::format("{}.{}", place, std::string_view(name).substr(0, 60));
    MOETUNE_ASSIGN_OR_RETURN(ParameterValue parameter, read_value(name, value, here));
    tactic.set(name, std::move(parameter));
  }
  for (const char* name : {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"}) {
    if (tactic.find(name) == nullptr) return bad_table(place, fmt::format("{} is missing", name));
  }
  return tactic;
}

Status check_value(const EngineParameter& parameter, const ParameterValue& value,
                   const char* engine) {
  const bool is_word = std::holds_alternative<std::string>(value);
  if (is_word == (parameter.kind == EngineParameter::Kind::kWord)) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}={} is not of the kind that {} has", parameter.name,
                           moetune::to_string(value), engine),
               "the plan comes from another kernel"};
}

Result<Json> print_tactic(const Tactic& tactic, Engine engine) {
  const char* const title = facts_of(engine).title;
  Json json = Json::object();
  for (const auto& [name, value] : tactic.parameters()) {
    const EngineParameter* const known = find_parameter(engine, name);
    if (known == nullptr) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}'s kernel has no parameter {}, and would end at it", title, name),
                   "the plan comes from another kernel, or from a newer engine than is known here"};
    }
    MOETUNE_RETURN_IF_ERROR(check_value(*known, value, title));
    if (known->kind == EngineParameter::Kind::kSwitch) {
      json[name] = std::get<int64_t>(value) != 0;
    } else {
      std::visit([&, &key = name](const auto& content) { json[key] = content; }, value);
    }
  }
  for (const EngineParameter& parameter : facts_of(engine).parameters) {
    if (!parameter.is_required || tactic.find(parameter.name) != nullptr) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tactic {} lacks {}, which {}'s kernel needs", tactic.text(),
                             parameter.name, title),
                 "the plan comes from another kernel"};
  }
  return json;
}

}  // namespace

const TritonTable::Entry& TritonTable::nearest(int64_t tokens) const {
  // Both are positive, or `tokens` is whatever a caller has: no difference may overflow.
  const auto distance = [tokens](const Entry& entry) {
    const auto a = static_cast<uint64_t>(std::max(entry.tokens, tokens));
    return a - static_cast<uint64_t>(std::min(entry.tokens, tokens));
  };
  return *std::min_element(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return distance(a) < distance(b);
  });
}

std::vector<TritonTable::Entry> TritonTable::sorted() const {
  std::vector<Entry> all = entries;
  std::sort(all.begin(), all.end(),
            [](const Entry& a, const Entry& b) { return a.tokens < b.tokens; });
  return all;
}

Result<TritonTable> parse_triton_table(std::string_view text, const std::string& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const Json json, parse_json(text, origin));
  if (!json.is_object())
    return bad_table(origin, fmt::format("expected an object, found {}", json_kind(json)));
  TritonTable table;
  for (const auto& [key, value] : json.items()) {
    if (key == kTritonVersion) {
      if (!value.is_string())
        return bad_table(origin, fmt::format("{}: expected a string, found {}", key, shown(value)));
      table.triton_version = value.get<std::string>();
      continue;
    }
    MOETUNE_ASSIGN_OR_RETURN(const int64_t tokens, read_tokens(key, origin));
    for (const TritonTable::Entry& entry : table.entries) {
      if (entry.tokens == tokens)
        return bad_table(origin, fmt::format("{} tokens are there twice", tokens));
    }
    MOETUNE_ASSIGN_OR_RETURN(Tactic tactic,
                             read_tactic(value, fmt::format("{}: \"{}\"", origin, key)));
    table.entries.push_back({tokens, std::move(tactic)});
  }
  if (table.entries.empty()) return bad_table(origin, "no number of tokens is in it");
  return table;
}

Result<TritonTable> read_triton_table(const std::string& path) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxTableBytes));
  return parse_triton_table(text, path);
}

bool looks_like_triton_table(std::string_view text) {
  const Result<Json> json = parse_json(text, "");
  if (!json.ok() || !json->is_object()) return false;
  return std::any_of(json->begin(), json->end(), [](const Json& value) {
    return value.is_object() && value.contains("BLOCK_SIZE_M");
  });
}

Result<std::string> print_triton_table(const TritonTable& table, Engine engine) {
  Json json = Json::object();
  if (!table.triton_version.empty()) json[kTritonVersion] = table.triton_version;
  for (const TritonTable::Entry& entry : table.entries) {
    MOETUNE_ASSIGN_OR_RETURN(json[std::to_string(entry.tokens)],
                             print_tactic(entry.tactic, engine));
  }
  return print_json(json);
}

}  // namespace moetune::exchange

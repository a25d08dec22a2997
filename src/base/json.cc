#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace moetune {
namespace {

// What is too much, before anything is made of the text; empty where all is within the limits. The
// parser itself does not recurse; whatever walks its result does. Of what is no JSON it says
// something or nothing: the parser will object.
std::string excess_of(std::string_view text, const JsonLimits& limits) {
  std::vector<size_t> members;  // Of the objects and arrays that are open.
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      members.push_back(0);
      if (members.size() > static_cast<size_t>(limits.max_depth))
        return fmt::format("nested deeper than {} levels", limits.max_depth);
    } else if ((c == '}' || c == ']') && !members.empty()) {
      members.pop_back();
    } else if (c == ':' && !members.empty() && ++members.back() > limits.max_members) {
      return fmt::format("an object of more than {} members", limits.max_members);
    }
  }
  return {};
}

// The library's text is "[json.exception.parse_error.101] parse error at line 1, column 2: syntax
// error ...".
std::string readable(std::string_view library_text) {
  const size_t end_of_tag = library_text.find("] ");
  if (end_of_tag != std::string_view::npos) library_text.remove_prefix(end_of_tag + 2);
  return std::string(library_text);
}

Error parse_error(const std::string& origin, std::string_view what) {
  return {ErrorCode::kParse, fmt::format("{}: {}", origin, what)};
}

bool get(const Json& value, int64_t& out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  out = value.get<int64_t>();
  return true;
}

bool get(const Json& value, uint64_t& out) {
  if (!value.is_number_unsigned()) return false;
  out = value.get<uint64_t>();
  return true;
}

bool get(const Json& value, int& out) {
  int64_t wide = 0;
  if (!get(value, wide) || wide < std::numeric_limits<int>::min() ||
      wide > std::numeric_limits<int>::max()) {
    return false;
  }
  out = static_cast<int>(wide);
  return true;
}

bool get(const Json& value, double& out) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) return false;
  out = value.get<double>();
  return true;
}

bool get(const Json& value, bool& out) {
  if (!value.is_boolean()) return false;
  out = value.get<bool>();
  return true;
}

bool get(const Json& value, std::string& out) {
  if (!value.is_string()) return false;
  out = value.get<std::string>();
  return true;
}

const char* expected(const int64_t&) { return "an integer of 64 bits"; }
const char* expected(const uint64_t&) { return "an integer of 64 bits, not negative"; }
const char* expected(const int&) { return "an integer of 32 bits"; }
const char* expected(const double&) { return "a number"; }
const char* expected(const bool&) { return "true or false"; }
const char* expected(const std::string&) { return "a string"; }

std::string join(const std::string& path, std::string_view name) {
  if (path.empty()) return std::string(name);
  return name.empty() ? path : fmt::format("{}.{}", path, name);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& origin, JsonLimits limits) {
  if (text.size() > limits.max_bytes) {
    return parse_error(origin, fmt::format("{} bytes of JSON; at most {} are read", text.size(),
                                           limits.max_bytes));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return parse_error(origin, "empty, where JSON is expected");
  }
  if (const std::string excess = excess_of(text, limits); !excess.empty())
    return parse_error(origin, excess);
  try {
    return Json::parse(text);
  } catch (const Json::exception& exception) {
    return parse_error(origin, readable(exception.what()));
  }
}

std::string print_json(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string print_json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const char* json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "true or false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number with a fraction";
    case Json::value_t::binary:
    case Json::value_t::discarded: return "nothing";
  }
  return "nothing";
}

Json json_unknown(const Json& document, const Json& known) {
  Json unknown;
  if (document.is_object() && known.is_object()) {
    for (const auto& [name, value] : document.items()) {
      const auto match = known.find(name);
      if (match == known.end()) {
        unknown[name] = value;
      } else if (Json inner = json_unknown(value, *match); !inner.is_null()) {
        unknown[name] = std::move(inner);
      }
    }
  } else if (document.is_array() && known.is_array() && document.size() == known.size()) {
    Json items = Json::array();
    bool any = false;
    for (size_t i = 0; i < document.size(); ++i) {
      items.push_back(json_unknown(document[i], known[i]));
      any = any || !items.back().is_null();
    }
    if (any) unknown = std::move(items);
  }
  return unknown;
}

void json_restore(Json& document, const Json& unknown) {
  if (document.is_object() && unknown.is_object()) {
    for (const auto& [name, value] : unknown.items()) {
      const auto match = document.find(name);
      if (match == document.end()) {
        document[name] = value;
      } else {
        json_restore(*match, value);
      }
    }
  } else if (document.is_array() && unknown.is_array() && document.size() == unknown.size()) {
    for (size_t i = 0; i < document.size(); ++i) json_restore(document[i], unknown[i]);
  }
}

JsonReader::JsonReader(const Json& value, std::string path)
    : JsonReader(value, std::move(path), nullptr) {}

JsonReader::JsonReader(const Json& value, std::string path, std::optional<Error>* error)
    : path_(std::move(path)), error_(error == nullptr ? &own_error_ : error) {
  if (value.is_object()) {
    object_ = &value;
  } else {
    fail("", fmt::format("expected an object, found {}", json_kind(value)));
  }
}

const Json* JsonReader::find(const char* name, bool required) {
  if (!ok()) return nullptr;
  const auto match = object_->find(name);
  if (match != object_->end()) return &*match;
  if (required) fail(name, "missing");
  return nullptr;
}

template <typename T>
void JsonReader::read(const char* name, T& value, bool required) {
  const Json* found = find(name, required);
  if (found == nullptr || get(*found, value)) return;
  if (found->is_number()) {
    fail(name, fmt::format("expected {}, found {}", expected(value), print_json_line(*found)));
  } else {
    fail(name, fmt::format("expected {}, found {}", expected(value), json_kind(*found)));
  }
}

template void JsonReader::read(const char*, int&, bool);
template void JsonReader::read(const char*, int64_t&, bool);
template void JsonReader::read(const char*, uint64_t&, bool);
template void JsonReader::read(const char*, double&, bool);
template void JsonReader::read(const char*, bool&, bool);
template void JsonReader::read(const char*, std::string&, bool);

void JsonReader::object(const char* name, const Visit& visit) {
  if (find(name, true) != nullptr) optional_object(name, visit);
}

void JsonReader::optional_object(const char* name, const Visit& visit) {
  const Json* found = find(name, false);
  if (found == nullptr) return;
  JsonReader inner(*found, join(path_, name), error_);
  if (inner.ok()) visit(inner);
}

void JsonReader::objects(const char* name, size_t max_items, const Visit& visit) {
  const Json* found = find(name, true);
  if (found == nullptr) return;
  if (!found->is_array()) {
    return fail(name, fmt::format("expected an array, found {}", json_kind(*found)));
  }
  if (found->size() > max_items) {
    return fail(name, fmt::format("{} items; at most {} are read", found->size(), max_items));
  }
  for (size_t i = 0; i < found->size() && ok(); ++i) {
    JsonReader item((*found)[i], fmt::format("{}[{}]", join(path_, name), i), error_);
    if (item.ok()) visit(item);
  }
}

void JsonReader::members(const VisitValue& visit) {
  if (!ok()) return;
  for (const auto& [name, value] : object_->items()) {
    if (ok()) visit(name, value);
  }
}

void JsonReader::fail(std::string_view name, std::string_view message) {
  if (!ok()) return;
  const std::string place = join(path_, name);
  *error_ = Error{ErrorCode::kParse,
                  place.empty() ? std::string(message) : fmt::format("{}: {}", place, message)};
}

}  // namespace moetune

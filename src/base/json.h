// JSON as untrusted input. Parsing has limits and returns errors as values; reading fields names
// the place of what is wrong
// ("plans[3].decisions[0].from: expected an integer, found a string"); and what this version does
// not know survives a round trip at every level: json_unknown() is the difference between a
// document and what this version would write for it, json_restore() puts that difference back.
//
// Objects keep the order of their keys, so that files stay diffable.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/result.h"

namespace moetune {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes =
      size_t{32} << 20;  ///< A value takes about 16 bytes in memory, at least two in the text.
  int max_depth = 64;    ///< Printing and comparing recurse.
  /// Of one object: each member is compared with all before it, as the order of keys is kept.
  size_t max_members = 1024;
};

/// kParse with line and column. `origin` (a file name, say) begins the message.
Result<Json> parse_json(std::string_view text, const std::string& origin, JsonLimits limits = {});

/// Indented by two, with a newline at the end. Bytes that are not UTF-8 become U+FFFD.
std::string print_json(const Json& value);
/// One line, no newline.
std::string print_json_line(const Json& value);

/// "an object", "a string", "an integer", ...: for messages.
const char* json_kind(const Json& value);

/// What `document` has and `known` has not: keys of objects, recursively, also through arrays of
/// one length (position by position). Null where there is nothing.
Json json_unknown(const Json& document, const Json& known);
/// Adds what json_unknown() found. What is there already wins.
void json_restore(Json& document, const Json& unknown);

/// Reads an object field by field. The first error is kept and later reads do nothing, so that a
/// whole structure is read in straight lines and asked once:
///
///   JsonReader reader(document, "");
///   reader.required("from", decision.from);
///   reader.object("evidence", [&](JsonReader& evidence) { evidence.optional("note", note); });
///   if (!reader.ok()) return reader.error();
class JsonReader {
 public:
  /// `path` is the place of `value` in its document, "" for the whole. An error where it is no
  /// object.
  JsonReader(const Json& value, std::string path);
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  bool ok() const { return !error_->has_value(); }
  /// Only where !ok(). Code kParse.
  const Error& error() const { return **error_; }

  void required(const char* name, int64_t& value) { read(name, value, true); }
  void required(const char* name, bool& value) { read(name, value, true); }
  void required(const char* name, std::string& value) { read(name, value, true); }
  void optional(const char* name, int& value) { read(name, value, false); }
  void optional(const char* name, int64_t& value) { read(name, value, false); }
  void optional(const char* name, uint64_t& value) { read(name, value, false); }
  void optional(const char* name, double& value) { read(name, value, false); }
  void optional(const char* name, bool& value) { read(name, value, false); }
  void optional(const char* name, std::string& value) { read(name, value, false); }

  using Visit = std::function<void(JsonReader&)>;
  using VisitValue = std::function<void(const std::string& name, const Json& value)>;
  /// Calls `visit` with the object of that name; an error where it is missing or none.
  void object(const char* name, const Visit& visit);
  /// The same, and nothing where it is missing.
  void optional_object(const char* name, const Visit& visit);
  /// Calls `visit` with each object of an array, until the first error. An error for more than
  /// `max_items`.
  void objects(const char* name, size_t max_items, const Visit& visit);
  /// Calls `visit` with each member of this object.
  void members(const VisitValue& visit);

  /// Reports that the field does not make sense: "<path>.<name>: <message>". With name "", the
  /// object itself.
  void fail(std::string_view name, std::string_view message);

 private:
  JsonReader(const Json& value, std::string path, std::optional<Error>* error);
  const Json* find(const char* name, bool required);
  template <typename T>
  void read(const char* name, T& value, bool required);

  const Json* object_ = nullptr;
  std::string path_;
  std::optional<Error> own_error_;
  std::optional<Error>* error_;  ///< Of the outermost reader.
};

}  // namespace moetune

// Typed reading of a JSON object's fields, each with its other names, its limits, and a message
// that says where and what.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "moetune/result.h"

namespace moetune::model {

/// A view of one JSON object; does not own it. A field that is null counts as absent.
class Fields {
 public:
  using Names = std::initializer_list<std::string_view>;  ///< The first one present counts.

  /// `where` begins every message: "config.json" or "config.json: text_config".
  Fields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool has(Names names) const { return find(names).second != nullptr; }
  const Json* find_value(Names names) const { return find(names).second; }
  /// The object under `name`; an empty one where there is none. kParse where it is something else.
  Result<Fields> object_or_empty(std::string_view name) const;

  /// A whole number within [low, high]; 8.0 counts as 8. kParse where it is absent, out of range or
  /// of another type; so for the others below.
  Result<int64_t> integer(Names names, int64_t low, int64_t high) const;
  Result<int64_t> integer_or(Names names, int64_t low, int64_t high, int64_t fallback) const;
  Result<double> number_or(Names names, double low, double high, double fallback) const;
  Result<bool> boolean_or(Names names, bool fallback) const;
  Result<std::string> text_or(Names names, std::string_view fallback) const;

 private:
  std::pair<std::string_view, const Json*> find(Names names) const;
  Error bad_value(std::string_view name, const Json& value, std::string_view wanted) const;
  Result<int64_t> checked(std::string_view name, const Json& value, int64_t low,
                          int64_t high) const;

  const Json* object_;
  std::string where_;
};

/// A value as it stands in messages: short, on one line, never more than 40 characters.
std::string brief(const Json& value);

/// "a, b or c".
std::string one_of(Fields::Names names);

}  // namespace moetune::model

#include "model/fields.h"

#include <fmt/format.h>

#include <cmath>

namespace moetune::model {
namespace {

constexpr size_t kBriefLength = 40;

}  // namespace

std::string brief(const Json& value) {
  // Objects and arrays are named, not printed: dumping one that is nested deeply would recurse as
  // deeply.
  if (value.is_structured()) return json_kind(value);
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kBriefLength) text = text.substr(0, kBriefLength - 3) + "...";
  return text;
}

std::string one_of(Fields::Names names) {
  std::string text;
  size_t position = 0;
  for (std::string_view name : names) {
    if (position > 0) text += position + 1 == names.size() ? " or " : ", ";
    text += name;
    ++position;
  }
  return text;
}

std::pair<std::string_view, const Json*> Fields::find(Names names) const {
  for (std::string_view name : names) {
    auto it = object_->find(name);
    if (it != object_->end() && !it->is_null()) return {name, &*it};
  }
  return {{}, nullptr};
}

Error Fields::bad_value(std::string_view name, const Json& value, std::string_view wanted) const {
  return {ErrorCode::kParse,
          fmt::format("{}: {} is {}, and must be {}", where_, name, brief(value), wanted)};
}

Result<int64_t> Fields::checked(std::string_view name, const Json& value, int64_t low,
                                int64_t high) const {
  const std::string wanted = fmt::format("a whole number from {} to {}", low, high);
  if (!value.is_number()) return bad_value(name, value, wanted);
  // All limits are far inside the 53 bits that a double holds exactly.
  const double number = value.get<double>();
  if (!(number >= static_cast<double>(low) && number <= static_cast<double>(high)) ||
      number != std::floor(number)) {
    return bad_value(name, value, wanted);
  }
  return static_cast<int64_t>(number);
}

Result<Fields> Fields::object_or_empty(std::string_view name) const {
  static const Json kEmpty = Json::object();
  const Json* value = find({name}).second;
  if (value == nullptr) return Fields(kEmpty, where_);
  if (!value->is_object()) return bad_value(name, *value, "an object");
  return Fields(*value, fmt::format("{}: {}", where_, name));
}

Result<int64_t> Fields::integer(Names names, int64_t low, int64_t high) const {
  const auto [name, value] = find(names);
  if (value != nullptr) return checked(name, *value, low, high);
  return Error{ErrorCode::kParse, fmt::format("{}: no field {}", where_, one_of(names)),
               "is this the config.json of a Mixture-of-Experts model, complete?"};
}

Result<int64_t> Fields::integer_or(Names names, int64_t low, int64_t high, int64_t fallback) const {
  const auto [name, value] = find(names);
  if (value == nullptr) return fallback;
  return checked(name, *value, low, high);
}

Result<double> Fields::number_or(Names names, double low, double high, double fallback) const {
  const auto [name, value] = find(names);
  if (value == nullptr) return fallback;
  const std::string wanted = fmt::format("a number from {} to {}", low, high);
  if (!value->is_number()) return bad_value(name, *value, wanted);
  const double number = value->get<double>();
  if (number >= low && number <= high) return number;
  return bad_value(name, *value, wanted);
}

Result<bool> Fields::boolean_or(Names names, bool fallback) const {
  const auto [name, value] = find(names);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return bad_value(name, *value, "true or false");
  return value->get<bool>();
}

Result<std::string> Fields::text_or(Names names, std::string_view fallback) const {
  const auto [name, value] = find(names);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return bad_value(name, *value, "a text");
  return value->get<std::string>();
}

}  // namespace moetune::model

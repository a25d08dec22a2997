#include "moetune/tactic.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tuner/text.h"

namespace moetune {
namespace {

bool lists(const Parameter& parameter, const ParameterValue& value) {
  return std::find(parameter.values.begin(), parameter.values.end(), value) !=
         parameter.values.end();
}

std::string listed_values(const Parameter& parameter) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < parameter.values.size() && i < kShown; ++i) {
    if (i > 0) text += ", ";
    text += to_string(parameter.values[i]);
  }
  return parameter.values.size() > kShown ? text + ", ..." : text;
}

std::string why_not_in_product(const std::vector<Parameter>& parameters, const Tactic& tactic) {
  for (const Parameter& parameter : parameters) {
    const ParameterValue* value = tactic.find(parameter.name);
    if (value == nullptr) return fmt::format("{} is missing", parameter.name);
    if (!lists(parameter, *value)) {
      return fmt::format("{}={} is none of {}", parameter.name, to_string(*value),
                         listed_values(parameter));
    }
  }
  if (tactic.parameters().size() == parameters.size()) return {};
  for (const auto& [name, value] : tactic.parameters()) {
    const bool known = std::any_of(parameters.begin(), parameters.end(),
                                   [&](const Parameter& p) { return p.name == name; });
    if (!known) return fmt::format("there is no parameter {}", name);
  }
  return "a parameter is given twice";
}

}  // namespace

std::string to_string(const ParameterValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
  return quoted_if_needed(std::get<std::string>(value));
}

const ParameterValue* Tactic::find(std::string_view name) const {
  for (const auto& [parameter, value] : parameters_) {
    if (parameter == name) return &value;
  }
  return nullptr;
}

int64_t Tactic::number(std::string_view name, int64_t fallback) const {
  const ParameterValue* value = find(name);
  const auto* number = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  return number == nullptr ? fallback : *number;
}

std::string_view Tactic::word(std::string_view name, std::string_view fallback) const {
  const ParameterValue* value = find(name);
  const auto* word = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return word == nullptr ? fallback : std::string_view(*word);
}

void Tactic::set(std::string_view name, ParameterValue value) {
  for (auto& [parameter, current] : parameters_) {
    if (parameter == name) {
      current = std::move(value);
      return;
    }
  }
  parameters_.emplace_back(name, std::move(value));
}

std::string Tactic::text() const {
  if (parameters_.empty()) return "-";
  std::string text;
  for (const auto& [name, value] : parameters_) {
    if (!text.empty()) text += ',';
    text += quoted_if_needed(name);
    text += '=';
    text += to_string(value);
  }
  return text;
}

int64_t Space::product_size() const {
  int64_t product = 1;
  for (const Parameter& parameter : parameters_) {
    const auto count = static_cast<int64_t>(parameter.values.size());
    if (count == 0) return 0;
    if (product > std::numeric_limits<int64_t>::max() / count) {
      product = std::numeric_limits<int64_t>::max();
    } else {
      product *= count;
    }
  }
  return product;
}

Tactic Space::point(int64_t index) const {
  Tactic::Parameters values(parameters_.size());
  for (size_t i = parameters_.size(); i-- > 0;) {
    const Parameter& parameter = parameters_[i];
    const auto count = static_cast<int64_t>(parameter.values.size());
    values[i] = {parameter.name, parameter.values[static_cast<size_t>(index % count)]};
    index /= count;
  }
  return Tactic(std::move(values));
}

std::string Space::why_excluded(const Tactic& tactic, int64_t tokens) const {
  if (std::string reason = why_not_in_product(parameters_, tactic); !reason.empty()) return reason;
  for (const SpaceRule& rule : rules_) {
    if (std::string reason = rule.excludes(tactic, tokens); !reason.empty()) {
      return fmt::format("{}: {}", rule.name, reason);
    }
  }
  return {};
}

std::optional<Tactic> Space::in_order(const Tactic& tactic) const {
  if (!why_not_in_product(parameters_, tactic).empty()) return std::nullopt;
  Tactic::Parameters ordered;
  ordered.reserve(parameters_.size());
  for (const Parameter& parameter : parameters_) {
    ordered.emplace_back(parameter.name, *tactic.find(parameter.name));
  }
  return Tactic(std::move(ordered));
}

std::vector<Tactic> Space::points(int64_t tokens) const {
  std::vector<Tactic> allowed;
  const int64_t size = product_size();
  for (int64_t index = 0; index < size; ++index) {
    Tactic tactic = point(index);
    if (why_excluded(tactic, tokens).empty()) allowed.push_back(std::move(tactic));
  }
  return allowed;
}

std::string Candidate::text() const {
  std::string text = quoted_if_needed(runner) + '/' + quoted_if_needed(scheme);
  for (const Stage& stage : stages) {
    text += fmt::format(" {}{{{}}}", quoted_if_needed(stage.name), stage.tactic.text());
  }
  return text;
}

}  // namespace moetune

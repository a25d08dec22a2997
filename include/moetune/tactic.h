// Tactics and the spaces they come from. A tactic is a point in a runner's space, known by the
// names and values of its parameters and never by an index, so that it keeps its meaning when the
// space grows, is reordered, or is read by another process a year later.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "moetune/result.h"

namespace moetune {

/// A parameter's value: a number or a word.
using ParameterValue = std::variant<int64_t, std::string>;

/// "64" or "row_major". A word that is not made of letters, digits and "_-.:/+", or that could be
/// read as a number, comes in single quotes, so that different values have different texts.
std::string to_string(const ParameterValue& value);

/// One point in a space: parameter names and values, in the order of the space. A value type;
/// thread-compatible.
class Tactic {
 public:
  using Parameters = std::vector<std::pair<std::string, ParameterValue>>;

  Tactic() = default;
  explicit Tactic(Parameters parameters) : parameters_(std::move(parameters)) {}
  Tactic(std::initializer_list<Parameters::value_type> parameters) : parameters_(parameters) {}

  const Parameters& parameters() const { return parameters_; }
  /// The value of a parameter, or nullptr where the tactic does not have it.
  const ParameterValue* find(std::string_view name) const;
  /// The value of a numeric (or textual) parameter, or `fallback`.
  int64_t number(std::string_view name, int64_t fallback = 0) const;
  std::string_view word(std::string_view name, std::string_view fallback = {}) const;
  /// Replaces the value of `name`, or appends it.
  void set(std::string_view name, ParameterValue value);

  /// "tile_m=64,tile_n=128,stages=4"; "-" for no parameters.
  std::string text() const;

  bool operator==(const Tactic&) const = default;

 private:
  Parameters parameters_;
};

struct Parameter {
  std::string name;
  std::vector<ParameterValue> values;  ///< At least one; the order in which they are tried.
  std::string meaning;                 ///< One line for `explain` and the docs.
};

/// A rule that excludes points. `excludes` returns the reason, or an empty string where the point
/// is allowed.
struct SpaceRule {
  std::string name;
  std::function<std::string(const Tactic&, int64_t tokens)> excludes;
};

/// The product of some parameters' values, less what rules exclude. Immutable once built; safe to
/// share between threads.
class Space {
 public:
  Space() = default;
  Space(std::vector<Parameter> parameters, std::vector<SpaceRule> rules = {})
      : parameters_(std::move(parameters)), rules_(std::move(rules)) {}

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Points of the whole product, excluded ones counted; at most 2^63 - 1.
  int64_t product_size() const;
  /// The point with that number in the product, 0 <= index < product_size(); the last parameter
  /// varies fastest.
  Tactic point(int64_t index) const;
  /// Why a point may not be used at this number of tokens: a parameter that is missing, unknown, or
  /// has a value the space does not list, or the first rule that excludes it ("rule: reason").
  /// Empty where it may be used.
  std::string why_excluded(const Tactic& tactic, int64_t tokens) const;
  /// The tactic with its parameters in the order of this space; nothing where it has others than
  /// the space or lists values that the space does not have. For tactics from files: their space
  /// may have been reordered since.
  std::optional<Tactic> in_order(const Tactic& tactic) const;
  /// Every allowed point at this number of tokens, in product order.
  std::vector<Tactic> points(int64_t tokens) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<SpaceRule> rules_;
};

/// What a runner can be told to do at some number of tokens: a scheme and a tactic for each of its
/// stages.
struct Candidate {
  struct Stage {
    std::string name;
    Tactic tactic;
    bool operator==(const Stage&) const = default;
  };

  std::string runner;
  int runner_version = 0;
  std::string scheme;
  std::vector<Stage> stages;

  /// "cpu.packed/separate gemm1{...} gemm2{...}". Equal texts mean the same candidate of the same
  /// runner; the version is not in it.
  std::string text() const;
  bool operator==(const Candidate&) const = default;
};

}  // namespace moetune

// A specification as the tuner knows it: attribute names and canonical texts.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string>

#include "base/status_macros.h"
#include "ops/moe/moe_workbench.h"

namespace moetune {

namespace {

// Reads attributes one by one; what nobody asked for is an error in the end.
class AttributeReader {
 public:
  explicit AttributeReader(const Problem& problem) : left_(problem.attributes) {}

  void number(const std::string& name, auto& value) {
    const auto at = left_.find(name);
    if (at == left_.end()) return;
    const char* first = at->second.data();
    const char* last = first + at->second.size();
    const auto [end, error] = std::from_chars(first, last, value);
    if (error != std::errc() || end != last) fail(name, at->second);
    left_.erase(at);
  }

  void flag(const std::string& name, bool& value) {
    int as_number = value ? 1 : 0;
    number(name, as_number);
    value = as_number != 0;
  }

  template <typename Enum>
  void word(const std::string& name, std::optional<Enum> (*parse)(std::string_view), Enum& value) {
    const auto at = left_.find(name);
    if (at == left_.end()) return;
    if (const std::optional<Enum> parsed = parse(at->second)) {
      value = *parsed;
    } else {
      fail(name, at->second);
    }
    left_.erase(at);
  }

  Status finish() {
    if (error_.empty() && !left_.empty()) {
      error_ = fmt::format("attribute '{}' is not known", left_.begin()->first);
    }
    if (error_.empty()) return {};
    return Error{ErrorCode::kParse, "fused_moe problem: " + error_,
                 "it may come from a newer moetune"};
  }

 private:
  void fail(const std::string& name, const std::string& text) {
    if (error_.empty()) error_ = fmt::format("attribute '{}' has the value '{}'", name, text);
  }

  std::map<std::string, std::string> left_;
  std::string error_;
};

std::optional<DataType> parse_output_type(std::string_view text) {
  if (text == "bf16") return DataType::kBf16;
  if (text == "f32") return DataType::kF32;
  return std::nullopt;
}

}  // namespace

Problem moe_problem(const FusedMoeSpec& spec) {
  static const FusedMoeSpec kOptional{};
  Problem problem{.op = "fused_moe", .attributes = {}};
  const auto put = [&problem](const char* name, const auto& value) {
    problem.attributes[name] = fmt::format("{}", value);
  };
  const auto put_unless = [&put](const char* name, const auto& value, const auto& usual) {
    if (value != usual) put(name, value);
  };
  put("hidden", spec.hidden);
  put("intermediate", spec.intermediate);
  put("experts", spec.experts);
  put("top_k", spec.top_k);
  put("weights", to_string(spec.weights));
  put("activations", to_string(spec.activations));
  put("activation", to_string(spec.activation));
  put("output", to_string(spec.output));
  put_unless("global_experts", spec.global_experts, spec.experts);
  put_unless("shared_experts", spec.shared_experts, 0);
  put_unless("bias", spec.bias ? 1 : 0, 0);
  put_unless("tp", spec.tp, kOptional.tp);
  put_unless("ep", spec.ep, kOptional.ep);
  if (spec.given_routing) {
    put("given_routing", 1);
    return problem;  // The router is not part of the operator, so it must not tell two problems
                     // apart.
  }
  put("score", to_string(spec.router.score));
  put("renormalise", spec.router.renormalise ? 1 : 0);
  put_unless("selection_bias", spec.router.selection_bias ? 1 : 0, 0);
  put_unless("groups", spec.router.groups, kOptional.router.groups);
  put_unless("top_groups", spec.router.top_groups, kOptional.router.top_groups);
  put_unless("score_after_top_k", spec.router.score_after_top_k ? 1 : 0, 0);
  put_unless("scale", spec.router.scale, kOptional.router.scale);
  return problem;
}

Result<FusedMoeSpec> moe_spec_of(const Problem& problem) {
  if (problem.op != "fused_moe") {
    return Error{ErrorCode::kParse, fmt::format("'{}' is not the operator fused_moe", problem.op)};
  }
  FusedMoeSpec spec;
  AttributeReader read(problem);
  read.number("hidden", spec.hidden);
  read.number("intermediate", spec.intermediate);
  read.number("experts", spec.experts);
  spec.global_experts = spec.experts;
  read.number("global_experts", spec.global_experts);
  read.number("top_k", spec.top_k);
  read.number("shared_experts", spec.shared_experts);
  read.word("weights", parse_weight_format, spec.weights);
  read.word("activations", parse_activation_format, spec.activations);
  read.word("activation", parse_activation, spec.activation);
  read.word("output", parse_output_type, spec.output);
  read.flag("bias", spec.bias);
  read.number("tp", spec.tp);
  read.number("ep", spec.ep);
  read.flag("given_routing", spec.given_routing);
  read.word("score", parse_score, spec.router.score);
  read.flag("renormalise", spec.router.renormalise);
  read.flag("selection_bias", spec.router.selection_bias);
  read.number("groups", spec.router.groups);
  read.number("top_groups", spec.router.top_groups);
  read.flag("score_after_top_k", spec.router.score_after_top_k);
  read.number("scale", spec.router.scale);
  MOETUNE_RETURN_IF_ERROR(read.finish());
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  return spec;
}

}  // namespace moetune

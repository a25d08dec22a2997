// The short texts: values of flags, names, workloads, and the texts by which problems and
// candidates are told apart. The first byte says which; the rest is the text.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "base/descriptor.h"
#include "cli/values.h"
#include "fuzz/fuzz_target.h"
#include "ops/moe/moe_workbench.h"
#include "ops/moe/workload.h"

namespace moetune::fuzz {
namespace {

// Lines "name=value"; what has no '=' is a name.
std::vector<std::pair<std::string, std::string>> read_pairs(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    std::string_view line = take_until(text, "\n");
    const std::string_view name = take_until(line, "=");
    pairs.emplace_back(name, line);
  }
  return pairs;
}

Problem read_problem(std::string_view text) {
  Problem problem;
  problem.op = take_until(text, "\n");
  for (auto& [name, value] : read_pairs(text)) problem.attributes[name] = value;
  return problem;
}

// "#5" is a number, all else a word; a line without '=' begins a stage.
Candidate read_candidate(std::string_view text) {
  Candidate candidate;
  candidate.runner = take_until(text, "\n");
  candidate.scheme = take_until(text, "\n");
  for (auto& [name, value] : read_pairs(text)) {
    if (value.empty() || candidate.stages.empty()) {
      candidate.stages.push_back({name, {}});
    } else if (value[0] == '#') {
      candidate.stages.back().tactic.set(name, std::strtoll(value.c_str() + 1, nullptr, 10));
    } else {
      candidate.stages.back().tactic.set(name, value);
    }
  }
  return candidate;
}

void check_moe_problem(std::string_view text) {
  Problem problem{.op = "fused_moe", .attributes = {}};
  for (auto& [name, value] : read_pairs(text)) problem.attributes[name] = value;
  const auto spec = moe_spec_of(problem);
  if (!spec.ok()) return;
  require(validate(*spec).ok() && expert_weight_bytes(*spec) > 0,
          "a problem that is read is valid");
  const Problem canonical = moe_problem(*spec);
  const auto again = moe_spec_of(canonical);
  require(again.ok(), "the canonical problem can be read", canonical.key());
  require(moe_problem(*again) == canonical, "canonical stays canonical", canonical.key());
}

void check_values(const std::string& text) {
  const auto tokens = cli::parse_tokens(text);
  for (const int64_t number : tokens.ok() ? *tokens : std::vector<int64_t>{})
    require(number >= 1 && number <= cli::kMaxTokens, "tokens are in range");
  if (const auto whole = cli::parse_whole("--n", text, -5, 5); whole.ok())
    require(*whole >= -5 && *whole <= 5, "a number is in range");
  if (const auto seconds = cli::parse_duration("--budget", text); seconds.ok()) {
    const auto again = cli::parse_duration("--budget", cli::duration_flag(*seconds));
    require(again.ok() && *again >= *seconds && *again < *seconds + 1,
            "a budget survives printing");
  }
  if (const auto age = cli::parse_age("--older-than", text); age.ok())
    require(*age >= 0 && std::isfinite(*age), "an age is in range");
  if (const auto bytes = cli::parse_bytes("--memory", text); bytes.ok())
    require(*bytes > 0 && !cli::bytes_text(static_cast<double>(*bytes)).empty(), "a size is one");
}

void check_names(const std::string& text) {
  if (const auto known = parse_weight_format(text)) require(to_string(*known) == text, "a format");
  if (const auto known = parse_activation(text))
    require(to_string(*known) == text, "an activation");
  if (const auto known = parse_score(text)) require(to_string(*known) == text, "a score");
  // The content of files is another kind of input, below.
  if (text.starts_with("trace:")) return;
  if (const auto workload = parse_workload(text); workload.ok())
    require(workload->text == text && std::isfinite(workload->exponent), "a workload");
}

void check_trace(std::string_view content) {
  const Descriptor file(::memfd_create("trace", MFD_CLOEXEC));
  if (::write(file.get(), content.data(), content.size()) < 0) return;
  const auto workload = parse_workload("trace:/proc/self/fd/" + std::to_string(file.get()));
  if (!workload.ok()) return;
  FusedMoeSpec spec{.hidden = 16, .intermediate = 16, .top_k = 1};
  spec.experts = spec.global_experts = static_cast<int64_t>(workload->counts.size());
  if (!validate(spec).ok()) return;
  const auto routing = make_routing(spec, *workload, 4, 1, 2);
  for (const int32_t id : routing.ok() ? routing->ids : std::vector<int32_t>{})
    require(id >= 0 && id < spec.experts, "an expert is one");
}

void run(std::string_view input) {
  const unsigned char kind = take_byte(input);
  const std::string text(input);
  std::string_view rest = input;
  const std::string_view first = take_until(rest, "\n\n");
  switch (kind) {
    case 'v': return check_values(text);
    case 'n': return check_names(text);
    case 'm': return check_moe_problem(input);
    case 't': return check_trace(input);
    case 'p': {
      const Problem a = read_problem(first), b = read_problem(rest);
      return require((a == b) == (a.key() == b.key()), "problems have keys of their own", a.key());
    }
    case 'c': {
      const Candidate a = read_candidate(first), b = read_candidate(rest);
      return require((a == b) == (a.text() == b.text()), "candidates have texts of their own",
                     a.text());
    }
    default: return;
  }
}

const Register registered("problem", run);

}  // namespace
}  // namespace moetune::fuzz

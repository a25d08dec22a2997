#include "moetune/function_runner.h"

#include <fmt/format.h>

namespace moetune {
namespace {

constexpr const char* kScheme = "single";
constexpr const char* kStage = "main";

class FunctionExecutable final : public Executable {
 public:
  FunctionExecutable(std::function<Status(const Call&, const Tactic&)> function, Tactic tactic)
      : function_(std::move(function)), tactic_(std::move(tactic)) {}

  Status run(const Call& call) override { return function_(call, tactic_); }

 private:
  std::function<Status(const Call&, const Tactic&)> function_;
  Tactic tactic_;
};

}  // namespace

FunctionRunner::FunctionRunner(Definition definition)
    : definition_(std::move(definition)), schemes_{{kScheme, {{kStage, definition_.space}}}} {}

Candidate FunctionRunner::default_candidate(int64_t tokens) const {
  return {name(), version(), kScheme, {{kStage, definition_.default_tactic(tokens)}}};
}

size_t FunctionRunner::workspace_bytes(const Candidate& candidate, int64_t tokens) const {
  if (!definition_.workspace_bytes || candidate.stages.size() != 1) return 0;
  return definition_.workspace_bytes(candidate.stages.front().tactic, tokens);
}

bool FunctionRunner::is_deterministic(const Candidate& candidate) const {
  if (!definition_.is_deterministic || candidate.stages.size() != 1) return true;
  return definition_.is_deterministic(candidate.stages.front().tactic);
}

Result<std::shared_ptr<Executable>> FunctionRunner::compile(const Candidate& candidate,
                                                            int64_t max_tokens) {
  if (candidate.runner != name() || candidate.scheme != kScheme || candidate.stages.size() != 1) {
    return Error{ErrorCode::kCompile,
                 fmt::format("{} is no candidate of {}", candidate.text(), name())};
  }
  const Tactic& tactic = candidate.stages.front().tactic;
  if (std::string reason = definition_.space.why_excluded(tactic, max_tokens); !reason.empty()) {
    return Error{ErrorCode::kCompile, fmt::format("{}: {}", candidate.text(), reason)};
  }
  return std::shared_ptr<Executable>(std::make_shared<FunctionExecutable>(definition_.run, tactic));
}

}  // namespace moetune

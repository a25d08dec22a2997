// FunctionRunner: a TunableRunner made of two functions, for tuning one's own operator without
// writing a class.
//
//   FunctionRunner::Definition blocked;
//   blocked.name = "transpose.blocked";
//   blocked.space = Space({{"tile", {8, 16, 32, 64}, "rows and columns of a block"}});
//   blocked.default_tactic = [](int64_t) { return Tactic({{"tile", 16}}); };
//   blocked.run = [](const Call& call, const Tactic& tactic) { ...; return Status(); };
//   FunctionRunner runner(std::move(blocked));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "moetune/runner.h"

namespace moetune {

/// Has one scheme, "single", of one stage, "main". Thread-safe where the functions are.
class FunctionRunner final : public TunableRunner {
 public:
  struct Definition {
    std::string name;
    int version = 1;  ///< Raise it when `run` changes its meaning or speed.
    Space space;
    /// What runs untuned. Must be allowed by `space` at every `tokens` >= 1.
    std::function<Tactic(int64_t tokens)> default_tactic;
    /// The operator itself: reads and writes call.arguments, whose sizes it finds there.
    std::function<Status(const Call& call, const Tactic& tactic)> run;
    /// Bytes of call.workspace that a tactic needs; empty: none.
    std::function<size_t(const Tactic& tactic, int64_t tokens)> workspace_bytes;
    /// Whether a tactic gives the same bits on every run; empty: all do.
    std::function<bool(const Tactic& tactic)> is_deterministic;
  };

  explicit FunctionRunner(Definition definition);

  std::string name() const override { return definition_.name; }
  int version() const override { return definition_.version; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t tokens) const override;
  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const override;
  bool is_deterministic(const Candidate& candidate) const override;
  /// kCompile for a candidate of another runner or outside of the space.
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override;

 private:
  Definition definition_;
  std::vector<Scheme> schemes_;
};

}  // namespace moetune

// A runner that says when it compiles: the parent has one deadline for compiling and another for
// running, and wants to know in which of the two a helper died.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tuner/forwarding_runner.h"

namespace moetune::worker {

/// Behaves like `runner`, which must outlive it, and tells `announce` before ("compile") and after
/// ("run") every compilation.
class AnnouncingRunner final : public ForwardingRunner {
 public:
  using Announce = std::function<void(const char* phase)>;

  AnnouncingRunner(TunableRunner& runner, Announce announce)
      : ForwardingRunner(runner), announce_(std::move(announce)) {}

  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    announce_("compile");
    auto executable = runner_.compile(candidate, max_tokens);
    announce_("run");
    return executable;
  }

 private:
  Announce announce_;
};

}  // namespace moetune::worker

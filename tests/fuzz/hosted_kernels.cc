// What a host of other kernels says of itself (peer.h says how the input begins): its runners,
// their spaces and defaults, and what they exclude.
#include "fuzz/fuzz_target.h"
#include "fuzz/peer.h"
#include "worker/hosted_runner.h"

namespace moetune::fuzz {
namespace {

WorkerOptions options() {
  WorkerOptions options;
  options.command = {"host"};
  options.foreign_name = "host";
  WorkerPolicy& policy = options.policy;
  policy.start_s = policy.load_s = policy.compile_s = policy.run_s = policy.first_run_s = 0;
  policy.run_factor = 0;
  policy.strikes = 1;  // No other host is started.
  return options;
}

void look_at(const TunableRunner& runner) {
  require(!runner.schemes().empty(), "a runner has a scheme");
  for (const int64_t tokens : {1, 64}) {
    const Candidate fallback = runner.default_candidate(tokens);
    const auto scheme =
        std::find_if(runner.schemes().begin(), runner.schemes().end(),
                     [&](const Scheme& each) { return each.name == fallback.scheme; });
    require(scheme != runner.schemes().end(), "the default has a scheme of its runner");
    for (size_t s = 0; s < scheme->stages.size(); ++s)
      require(scheme->stages[s].space.why_excluded(fallback.stages[s].tactic, tokens).empty(),
              "the default may always run");
  }
  constexpr int64_t kFew = 1000;
  for (const Scheme& scheme : runner.schemes()) {
    for (const StageSpace& stage : scheme.stages) {
      if (stage.space.product_size() <= kFew) (void)stage.space.points(64);
    }
  }
}

void run(std::string_view input) {
  auto [socket, helper] = said(input);
  auto host = WorkerHost::attach(std::move(socket), options());
  if (!host.ok()) return;
  const Suggestion suggestion{8, Tactic({{"block", 128}})};
  const auto kernels =
      describe_kernels(*host, {.problem = {"double", {}}, .options = {}}, {suggestion});
  if (!kernels.ok()) {
    require(!kernels.error().message.empty(), "an error says what is wrong");
    return;
  }
  for (const auto& runner : kernels->runners) {
    look_at(*runner);
    if (const auto candidate = suggested_candidate(*runner, suggestion))
      require(candidate->runner == runner->name(), "a suggestion is this runner's");
  }
}

const Register registered("hosted_kernels", run);

}  // namespace
}  // namespace moetune::fuzz

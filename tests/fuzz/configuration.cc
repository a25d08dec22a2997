// A tuned configuration as a user may have edited it: read, written again, merged, loaded into a
// tuner, checked against runners and looked up.
#include <algorithm>
#include <array>
#include <limits>

#include "fuzz/fuzz_target.h"
#include "moetune/autotuner.h"
#include "tuner/sample_runner.h"

namespace moetune::fuzz {
namespace {

void check_round_trip(const TunedConfiguration& configuration) {
  const std::string text = configuration.to_json();
  const auto again = TunedConfiguration::from_json(text, "written");
  require(again.ok(), "what was written can be read", again.ok() ? "" : again.error().message);
  require(again->device == configuration.device, "the device is the same", text);
  require(again->plans == configuration.plans, "the plans are the same", text);
  require(again->extra_json == configuration.extra_json, "what is unknown is the same", text);
  require(again->to_json() == text, "two saves are identical bytes", text);
}

void check_merge(const TunedConfiguration& configuration) {
  TunedConfiguration merged;
  merged.device = configuration.device;
  merged.extra_json = configuration.extra_json;
  for (const Plan& plan : configuration.plans) merged.put(plan);
  for (const Plan& plan : configuration.plans) merged.put(plan);
  require(merged.to_json() == configuration.to_json(), "merging is putting in order");
}

void look_up(AutoTuner& tuner, const Plan& plan) {
  const PlanHandle handle = tuner.handle(plan.problem);
  std::vector<int64_t> sizes = {
      std::numeric_limits<int64_t>::min(), -1, 0, 1, plan.max_tokens, plan.max_tokens + 1,
      std::numeric_limits<int64_t>::max()};
  for (const Decision& decision : plan.decisions)
    sizes.insert(sizes.end(), {decision.from, decision.to});
  for (const int64_t tokens : sizes) {
    const Lookup hit = handle.find(tokens);
    const bool tells =
        hit.provenance == Provenance::kTuned || hit.provenance == Provenance::kNearest;
    require(tells == (hit.decision != nullptr), "a decision is there exactly where it is used");
    if (hit.decision == nullptr) continue;
    require(hit.decision->from <= tokens && tokens <= hit.decision->to, "it is the size's own");
    (void)hit.decision->candidate.text();
  }
}

void use(const TunedConfiguration& configuration, const DeviceProperties& device) {
  SampleRunner one("cpu.one");
  SampleRunner two("cpu.two", 2);
  two.deterministic = [](const Candidate&) { return false; };
  const std::array<TunableRunner*, 2> runners = {&one, &two};
  for (const bool deterministic : {false, true}) {
    AutoTuner tuner(device, {.deterministic = deterministic});
    (void)tuner.load(configuration, AutoTuner::Source::kUser);
    (void)tuner.load(configuration, AutoTuner::Source::kShipped);
    for (const Plan& plan : configuration.plans) {
      look_up(tuner, plan);  // Not in force yet.
      (void)tuner.validate(plan.problem, runners);
      look_up(tuner, plan);
      (void)tuner.pin(configuration, plan.problem, runners, plan.max_tokens);
      look_up(tuner, plan);
    }
    check_round_trip(tuner.configuration());
  }
}

void run(std::string_view input) {
  const auto configuration = TunedConfiguration::from_json(std::string(input), "input");
  if (!configuration.ok()) {
    require(!configuration.error().message.empty(), "an error says what is wrong");
    return;
  }
  check_round_trip(*configuration);
  check_merge(*configuration);
  use(*configuration, configuration->device);
  DeviceProperties sibling = configuration->device;
  sibling.identity["cores"] += '1';
  sibling.toolchain["compiler"] += '1';
  use(*configuration, sibling);
}

const Register registered("configuration", run);

}  // namespace
}  // namespace moetune::fuzz

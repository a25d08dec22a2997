// What a helper sends to a parent (peer.h says how the input begins): the conversation is with an
// executor that loads, selects, checks and measures. Nobody listens to its requests, and no time is
// given, so that what has not been said already is a deadline.
#include <array>

#include "fuzz/fuzz_target.h"
#include "fuzz/peer.h"
#include "worker/worker_host.h"

namespace moetune::fuzz {
namespace {

Candidate candidate(int64_t tile) {
  return {"double.it", 1, "single", {{"main", Tactic({{"tile", tile}})}}};
}

WorkerOptions options() {
  WorkerOptions options;
  options.command = {"helper"};
  WorkerPolicy& policy = options.policy;
  policy.start_s = policy.load_s = policy.compile_s = policy.run_s = policy.first_run_s = 0;
  policy.run_factor = 0;
  policy.strikes = 1;  // No other helper is started.
  return options;
}

void check_output(const CheckOutput& output) {
  require(output.outputs.size() == output.storage.size(), "each output has its data");
  size_t bytes = 0;
  for (size_t i = 0; i < output.outputs.size(); ++i) {
    require(output.outputs[i].bytes() == output.storage[i].size(), "of the announced size");
    for (const std::byte byte : output.storage[i]) bytes += static_cast<size_t>(byte);
  }
  require(bytes == 0, "as it was sent");
}

void tune_with(Executor& executor) {
  const WeightLayout layout{"double.it", ""};
  if (!executor.load({&layout, 1}, Scale::kFull).ok()) return;
  if (!executor.select({.tokens = 4}, 2).ok()) return;
  const std::array candidates = {candidate(1), candidate(2)};
  executor.prefetch(candidates, 4);
  const std::array<int64_t, 2> rows = {0, 3};
  for (const Candidate& each : candidates) {
    const auto output = executor.check(each, 0, rows);
    if (output.ok()) check_output(*output);
  }
  const std::array order = {&candidates[0], &candidates[1]};
  const auto samples = executor.measure(order, -1, 3);
  require(!samples.ok() || samples->size() == order.size(), "a sample for each candidate");
}

void run(std::string_view input) {
  auto [socket, helper] = said(input);
  auto host = WorkerHost::attach(std::move(socket), options());
  if (!host.ok()) {
    require(!host.error().message.empty(), "an error says what is wrong");
    return;
  }
  auto executor = make_worker_executor(*host, {.problem = {"double", {}}, .options = {}});
  if (executor.ok()) tune_with(**executor);
  (void)(*host)->output();
}

const Register registered("protocol_parent", run);

}  // namespace
}  // namespace moetune::fuzz

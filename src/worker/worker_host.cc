#include "worker/worker_host.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/child_process.h"
#include "base/environment.h"
#include "base/status_macros.h"
#include "worker/host_state.h"

namespace moetune {
namespace {

constexpr size_t kRememberedCompiles = 256;

}  // namespace

std::vector<std::string> find_worker_program() {
  if (const auto named = environment(Variable::kWorker)) return {*named};
  return find_helper_program(worker::kProgramName);
}

Status WorkerHost::State::ensure() {
  if (helper) {
    const std::optional<std::string> dead = helper->found_dead();
    if (!dead) return {};
    discard("the helper process " + *dead);
  }
  if (has_given_up) return Error{ErrorCode::kInterrupted, trouble};
  auto made = worker::HelperProcess::start(options);
  if (!made.ok()) {
    has_given_up = true;
    trouble = made.error().message;
    return Error{ErrorCode::kInterrupted, trouble, made.error().hint};
  }
  helper = std::move(made).value();
  ++started;
  return {};
}

worker::Reply WorkerHost::State::ask(Json request, std::span<const Descriptor> files, double run_s,
                                     const char* doing) {
  using Ending = worker::Reply::Kind;
  const worker::Limits limits{.run_s = run_s,
                              .compile_s = compile_limit_s(),
                              .stop_grace_s = options.policy.stop_grace_s,
                              .stop = stop_event.get(),
                              .doing = doing};
  worker::Reply reply = helper->ask(std::move(request), files, limits);
  if (reply.kind == Ending::kAnswer) good();
  if (reply.kind == Ending::kAnswer && reply.compile_seconds > 0) {
    compile_seconds.push_back(reply.compile_seconds);
    if (compile_seconds.size() > kRememberedCompiles)
      compile_seconds.erase(compile_seconds.begin());
  }
  if (reply.kind == Ending::kDied) discard(reply.error.message);
  if (reply.kind == Ending::kStopped) helper.reset();
  return reply;
}

void WorkerHost::State::discard(const std::string& why) {
  last_output = helper->output();
  helper.reset();
  if (++deaths_in_row < options.policy.strikes) return;
  has_given_up = true;
  trouble = fmt::format("{} helper processes died in a row without one good answer; the last: {}",
                        deaths_in_row, why);
}

double WorkerHost::State::compile_limit_s() const {
  const WorkerPolicy& policy = options.policy;
  if (compile_seconds.empty()) return policy.compile_s;
  std::vector<double> sorted = compile_seconds;
  const auto nth = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() * 9 / 10);
  std::nth_element(sorted.begin(), nth, sorted.end());
  return std::max(policy.compile_s, policy.compile_factor * *nth);
}

WorkerHost::WorkerHost(std::unique_ptr<State> state) : state_(std::move(state)) {}
WorkerHost::~WorkerHost() = default;

Result<std::shared_ptr<WorkerHost>> WorkerHost::start(WorkerOptions options) {
  if (options.command.empty()) options.command = find_worker_program();
  if (options.command.empty()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is neither beside this program nor in ../libexec/moetune",
                             worker::kProgramName),
                 "install it there, or set MOETUNE_WORKER to its path"};
  }
  auto state = std::make_unique<State>(std::move(options));
  MOETUNE_ASSIGN_OR_RETURN(state->helper, worker::HelperProcess::start(state->options));
  state->started = 1;
  return std::shared_ptr<WorkerHost>(new WorkerHost(std::move(state)));
}

Result<std::shared_ptr<WorkerHost>> WorkerHost::attach(Descriptor socket, WorkerOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  MOETUNE_ASSIGN_OR_RETURN(state->helper,
                           worker::HelperProcess::attach(std::move(socket), state->options));
  state->started = 1;
  return std::shared_ptr<WorkerHost>(new WorkerHost(std::move(state)));
}

void WorkerHost::stop_on(std::stop_token stop) {
  state_->on_stop.reset();
  state_->stop_event = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  state_->stop = stop;
  state_->on_stop.emplace(std::move(stop), [event = state_->stop_event.get()] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof one);
  });
}

int WorkerHost::respawns() const { return std::max(0, state_->started - 1); }

pid_t WorkerHost::pid() const { return state_->helper ? state_->helper->pid() : -1; }

const std::string& WorkerHost::trouble() const { return state_->trouble; }

std::string WorkerHost::output() const {
  return state_->helper ? state_->helper->output().text() : state_->last_output.text();
}

}  // namespace moetune

#include "cli/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <thread>

#include "cli/exit.h"

namespace moetune::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};
constexpr char kSignalled = 's';
constexpr char kFinished = 'f';

// A signal handler may do little more than write to a pipe; a thread reads it and does the rest.
int pipe_to_thread = -1;
volatile std::sig_atomic_t signals_seen = 0;

void on_signal(int) {
  const int saved = errno;
  signals_seen = signals_seen + 1;
  if (signals_seen > 1) ::_exit(static_cast<int>(Exit::kInterrupted));
  constexpr std::string_view kMessage =
      "\nstopping; keeping what is known so far (once more: stop at once)\n";
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  written = ::write(pipe_to_thread, &kSignalled, 1);
  errno = saved;
}

}  // namespace

struct Interrupts::State {
  std::stop_source source;
  std::array<int, 2> pipe = {-1, -1};
  std::array<struct sigaction, kSignals.size()> previous = {};
  std::thread thread;

  void wait() {
    char what = 0;
    while (::read(pipe[0], &what, 1) < 0 && errno == EINTR) {
    }
    if (what == kSignalled) source.request_stop();
  }
};

Interrupts::Interrupts() : state_(std::make_unique<State>()) {
  // Without a pipe (no descriptors left) signals keep their usual effect.
  if (::pipe2(state_->pipe.data(), O_CLOEXEC) != 0) return;
  pipe_to_thread = state_->pipe[1];
  signals_seen = 0;
  state_->thread = std::thread([state = state_.get()] { state->wait(); });
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i)
    ::sigaction(kSignals[i], &action, &state_->previous[i]);
}

Interrupts::~Interrupts() {
  if (!state_->thread.joinable()) return;
  for (size_t i = 0; i < kSignals.size(); ++i)
    ::sigaction(kSignals[i], &state_->previous[i], nullptr);
  [[maybe_unused]] const ssize_t written = ::write(state_->pipe[1], &kFinished, 1);
  state_->thread.join();
  ::close(state_->pipe[0]);
  ::close(state_->pipe[1]);
}

std::stop_token Interrupts::token() const { return state_->source.get_token(); }

}  // namespace moetune::cli

// What a helper program does beside serving: limits, and ending when its parent does.
//
// A parent that ends in any way, kill -9 included, closes its end of the socket, which a thread
// waits for; the signal that the system sends for a dead parent is the second line, for a helper
// whose threads do not run any more. Either ends the whole process group, so that nothing stays
// that a candidate left behind.

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "base/child_process.h"
#include "worker/messages.h"
#include "worker/server.h"

namespace moetune::worker {
namespace {

struct Arguments {
  int64_t parent = 0;        // Its process number.
  int64_t memory_bytes = 0;  // 0: no limit.
};

// As helper_process.cc gives them: --parent N [--memory-bytes N].
std::optional<Arguments> read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const bool is_parent = std::strcmp(argv[i], "--parent") == 0;
    if (!is_parent && std::strcmp(argv[i], "--memory-bytes") != 0) return std::nullopt;
    int64_t& value = is_parent ? arguments.parent : arguments.memory_bytes;
    const char* last = argv[i + 1] + std::strlen(argv[i + 1]);
    const auto [end, error] = std::from_chars(argv[i + 1], last, value);
    if (error != std::errc() || end != last || value < 1) return std::nullopt;
  }
  if (argc % 2 == 0 || arguments.parent == 0) return std::nullopt;
  return arguments;
}

// Only a group of its own: who starts a helper by hand may not have made one.
void end_group() {
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
  ::_exit(1);
}

pid_t parent_at_start = 0;

// Also comes when a mere thread of the parent ends that started this process.
void on_parents_death(int) {
  if (::getppid() != parent_at_start) end_group();
}

void end_with_parent() {
  struct sigaction action = {};
  action.sa_handler = on_parents_death;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGHUP, &action, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGHUP);
  if (::getppid() != parent_at_start) end_group();  // It was faster.
  std::thread([] {
    pollfd hangup{kHelperSocket, POLLRDHUP, 0};
    while (::poll(&hangup, 1, -1) < 0 && errno == EINTR) {
    }
    // Closed in this process: it is ending by itself, with a status of its own.
    if ((hangup.revents & POLLNVAL) == 0) end_group();
  }).detach();
}

void set_limit(int resource, uint64_t bytes) {
  const rlimit limit = {bytes, bytes};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

// The sanitizers' own memory would count.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;
#else
constexpr bool kLimitsMemory = true;
#endif

void set_limits(const Arguments& arguments) {
  // Private memory: a GPU driver reserves far more addresses than it will ever use.
  if (kLimitsMemory && arguments.memory_bytes > 0)
    set_limit(RLIMIT_DATA, static_cast<uint64_t>(arguments.memory_bytes));
  // No core dumps, which take seconds and fill disks. One byte, because none does not keep the
  // system from feeding a dump to a program.
  set_limit(RLIMIT_CORE, 1);
}

}  // namespace

int run_program(int argc, char** argv, const Registry& registry) {
  const std::optional<Arguments> arguments = read_arguments(argc, argv);
  if (!arguments) {
    fmt::print(stderr,
               "{} {} (protocol {}) is started by moetune to run kernels apart from it; it does "
               "nothing by itself\n",
               kProgramName, version(), kProtocol);
    return 2;
  }
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C is for the parent, which saves first.
  ::signal(SIGPIPE, SIG_IGN);
  parent_at_start = static_cast<pid_t>(arguments->parent);
  set_limits(*arguments);
  end_with_parent();
  LineChannel channel{Descriptor(kHelperSocket)};
  if (const Status served = Server(channel, registry).run(); !served.ok()) {
    fmt::print(stderr, "{}\n", served.error().message);
    return 1;
  }
  return 0;
}

}  // namespace moetune::worker

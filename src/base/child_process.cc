#include "base/child_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include "base/system_error.h"

extern char** environ;

namespace moetune {
namespace {

namespace fs = std::filesystem;

// posix_spawn's settings: the descriptors that a helper gets, and signals as a fresh program
// expects them, whatever the host program did to its own.
class SpawnSettings {
 public:
  SpawnSettings(int socket, int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions_, output < 0 ? 0 : output, 1);
    posix_spawn_file_actions_adddup2(&actions_, 1, 2);
    posix_spawn_file_actions_adddup2(&actions_, socket, kHelperSocket);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kHelperSocket + 1);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t usual;
    sigemptyset(&usual);
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGCHLD})
      sigaddset(&usual, signal);
    posix_spawnattr_setsigdefault(&attributes_, &usual);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int spawn(pid_t& pid, const std::vector<std::string>& command) const {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    return ::posix_spawn(&pid, arguments[0], &actions_, &attributes_, arguments.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

enum class State : uint8_t { kRunning, kEnded, kTaken };

// Looks without taking the process's status: until that is taken, its number and its group's stay
// its own. kTaken where the host program waits for every child and was faster.
State state_of(pid_t pid) {
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return errno == ECHILD ? State::kTaken : State::kRunning;
  return info.si_pid == 0 ? State::kRunning : State::kEnded;
}

// `status` as waitpid() gave it; nothing where somebody else was given it.
ChildProcess::End end_of(bool by_itself, std::optional<int> status) {
  if (!status) return {by_itself, 0, "ended"};
  if (!WIFSIGNALED(*status))
    return {by_itself, 0, fmt::format("ended with status {}", WEXITSTATUS(*status))};
  const int signal = WTERMSIG(*status);
  return {by_itself, signal, fmt::format("died of signal {} ({})", signal, strsignal(signal))};
}

// The library that this code is in; empty where it is part of the program, or was opened by a path
// that depends on the working folder of that moment.
fs::path own_library() {
  Dl_info own = {};
  if (::dladdr(reinterpret_cast<const void*>(&own_library), &own) == 0 || !own.dli_fname) return {};
  const fs::path path = own.dli_fname;
  std::error_code error;
  return path.is_absolute() ? fs::canonical(path, error) : fs::path();
}

}  // namespace

std::vector<std::string> helper_places(const std::string& program, const std::string& module) {
  std::vector<std::string> places;
  if (!program.empty()) {
    const fs::path folder = fs::path(program).parent_path();
    places = {folder.string(), (folder.parent_path() / "libexec" / "moetune").string()};
  }
  if (module.empty() || module == program) return places;
  // A library lies in lib, in lib/x86_64-linux-gnu, or in a Python package's lib, which is
  // lib/python3.11/site-packages/moetune/lib.
  fs::path above = fs::path(module).parent_path();
  for (int i = 0; i < 5 && above.has_relative_path(); ++i) {
    above = above.parent_path();
    places.push_back((above / "libexec" / "moetune").string());
  }
  return places;
}

namespace {

std::vector<std::string> places_of_this_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return helper_places(program.string(), own_library().string());
}

}  // namespace

std::vector<std::string> find_helper_program(const std::string& name) {
  for (const std::string& place : places_of_this_program()) {
    const fs::path helper = fs::path(place) / name;
    if (::access(helper.c_str(), X_OK) == 0) return {helper.string()};
  }
  return {};
}

std::string find_data_folder(const std::string& name) {
  std::error_code error;
  for (const std::string& place : places_of_this_program()) {
    // Each is PREFIX/bin or PREFIX/libexec/moetune.
    const fs::path folder(place);
    const bool is_libexec = folder.filename() == "moetune";
    const fs::path prefix = is_libexec ? folder.parent_path().parent_path() : folder.parent_path();
    const fs::path found = prefix / "share" / "moetune" / name;
    if (fs::is_directory(found, error)) return found.string();
  }
  return {};
}

Result<std::pair<Descriptor, Descriptor>> make_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot make a socket: {}", error_text(errno))};
  }
  return std::pair(Descriptor(ends[0]), Descriptor(ends[1]));
}

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& command, int socket,
                                         int output) {
  // Above every number that the helper's own descriptors get.
  const Descriptor its_socket(::fcntl(socket, F_DUPFD_CLOEXEC, kHelperSocket + 1));
  const Descriptor its_output(output < 0 ? -1
                                         : ::fcntl(output, F_DUPFD_CLOEXEC, kHelperSocket + 1));
  pid_t pid = -1;
  const SpawnSettings settings(its_socket.get(), its_output.get());
  if (const int error = settings.spawn(pid, command); error != 0) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("cannot start {}: {}", command[0], error_text(error))};
  }
  return ChildProcess(pid, Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
}

ChildProcess::End ChildProcess::end(std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kPause{1};
  if (pid_ <= 0) return {};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (state_of(pid_) == State::kRunning && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kPause);
  const State state = state_of(pid_);
  if (state != State::kTaken) {
    ::kill(pid_, SIGKILL);
    ::kill(-pid_, SIGKILL);
  }
  int status = 0;
  pid_t waited = -1;
  do {
    waited = ::waitpid(pid_, &status, 0);
  } while (waited < 0 && errno == EINTR);
  pid_ = -1;
  watch_.reset();
  return end_of(state != State::kRunning, waited < 0 ? std::nullopt : std::optional<int>(status));
}

}  // namespace moetune

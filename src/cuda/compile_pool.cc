#include "cuda/compile_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/status_macros.h"
#include "cuda/compile_worker.h"

extern char** environ;

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;

constexpr int kSocketInWorker = 3;  // The first descriptor after the standard three.

Result<std::string> make_scratch_folder() {
  std::error_code error;
  std::string pattern = (fs::temp_directory_path(error) / "moetune-jit-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    return Error{ErrorCode::kIo,
                 fmt::format("cannot make a folder like {}: {}", pattern,
                             std::generic_category().message(errno)),
                 "set TMPDIR to a folder that can be written"};
  }
  return pattern;
}

// posix_spawn's settings for one worker: its socket, no other descriptor of ours, no signal meant
// for our terminal.
class SpawnSettings {
 public:
  explicit SpawnSettings(int socket) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions_, 0, 1);
    posix_spawn_file_actions_adddup2(&actions_, 0, 2);
    posix_spawn_file_actions_adddup2(&actions_, socket, kSocketInWorker);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kSocketInWorker + 1);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
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

std::string describe_exit(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("died of signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

// One helper process and our end of its socket.
class CompilerPool::Process {
 public:
  static Result<std::unique_ptr<Process>> start(std::vector<std::string> command,
                                                const std::string& library) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Error{ErrorCode::kIo,
                   fmt::format("cannot make a socket: {}", std::generic_category().message(errno))};
    }
    auto process = std::unique_ptr<Process>(new Process(ends[0]));
    auto scratch = make_scratch_folder();
    if (!scratch.ok()) {
      ::close(ends[1]);
      return std::move(scratch).error();
    }
    process->scratch_ = *scratch;
    command.insert(command.end(), {library, *scratch});
    const int error = SpawnSettings(ends[1]).spawn(process->pid_, command);
    ::close(ends[1]);
    if (error != 0) {
      process->pid_ = -1;
      return Error{
          ErrorCode::kNotFound,
          fmt::format("cannot start {}: {}", command[0], std::generic_category().message(error)),
          "install moetune-jit beside the program that uses moetune"};
    }
    return process;
  }

  ~Process() {
    if (pid_ > 0) end();
    ::close(socket_);
    std::error_code ignored;
    if (!scratch_.empty()) fs::remove_all(scratch_, ignored);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int socket() const { return socket_; }

  // Kills the process if it still runs, and says how it ended.
  std::string end() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return describe_exit(status);
  }

  // How a process that closed its socket ended: it is on its way out, by itself.
  std::string wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return describe_exit(status);
  }

 private:
  explicit Process(int socket) : socket_(socket) {}
  int socket_;
  pid_t pid_ = -1;
  std::string scratch_;
};

// The right to have one process at work.
class CompilerPool::Turn {
 public:
  explicit Turn(CompilerPool& pool) : pool_(pool) {
    std::unique_lock lock(pool.mutex_);
    pool.freed_.wait(lock, [&] { return pool.free_turns_ > 0; });
    --pool.free_turns_;
  }
  ~Turn() {
    {
      const std::lock_guard lock(pool_.mutex_);
      ++pool_.free_turns_;
    }
    pool_.freed_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  CompilerPool& pool_;
};

std::vector<std::string> find_compile_worker() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = program.parent_path();
  for (const fs::path& place : {folder, folder.parent_path() / "libexec" / "moetune"}) {
    const fs::path worker = place / kCompileWorkerName;
    if (::access(worker.c_str(), X_OK) == 0) return {worker.string()};
  }
  return {};
}

CompilerPool::CompilerPool(std::vector<std::string> command, std::string library, int jobs)
    : command_(std::move(command)), library_(std::move(library)), free_turns_(std::max(1, jobs)) {}

CompilerPool::~CompilerPool() = default;

Result<std::unique_ptr<CompilerPool::Process>> CompilerPool::take_process(bool fresh) {
  if (!fresh) {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
  }
  return Process::start(command_, library_);
}

Result<CompileOutcome> CompilerPool::run(const CompileJob& job,
                                         std::chrono::milliseconds deadline) {
  const Turn turn(*this);
  const std::vector<uint8_t> message = encode(job);
  MOETUNE_ASSIGN_OR_RETURN(auto process, take_process(false));
  if (!send_message(process->socket(), message).ok()) {
    // It died while it was idle, of something that has nothing to do with this job.
    MOETUNE_ASSIGN_OR_RETURN(process, take_process(true));
    MOETUNE_RETURN_IF_ERROR(send_message(process->socket(), message));
  }

  auto answer = receive_message(process->socket(), std::chrono::steady_clock::now() + deadline);
  if (!answer.ok()) {
    if (answer.error().code != ErrorCode::kDeadline) return std::move(answer).error();
    return Error{ErrorCode::kDeadline,
                 fmt::format("the compiler took longer than {:.0f} s and was stopped",
                             std::chrono::duration<double>(deadline).count())};
  }
  if (!answer->has_value()) {
    return Error{ErrorCode::kCompile, fmt::format("the compiler process {}", process->wait())};
  }
  MOETUNE_ASSIGN_OR_RETURN(CompileOutcome outcome, decode_outcome(**answer));
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(process));
  return outcome;
}

}  // namespace moetune::cuda

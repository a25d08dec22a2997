#include "cuda/compile_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/child_process.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "cuda/compile_worker.h"

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;

Result<std::string> make_scratch_folder() {
  std::error_code error;
  std::string pattern = (fs::temp_directory_path(error) / "moetune-jit-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    return Error{ErrorCode::kIo,
                 fmt::format("cannot make a folder like {}: {}", pattern, error_text(errno)),
                 "set TMPDIR to a folder that can be written"};
  }
  return pattern;
}

}  // namespace

// One helper process and our end of its socket.
class CompilerPool::Process {
 public:
  static Result<std::unique_ptr<Process>> start(std::vector<std::string> command,
                                                const std::string& library) {
    MOETUNE_ASSIGN_OR_RETURN(auto ends, make_socket_pair());
    MOETUNE_ASSIGN_OR_RETURN(std::string scratch, make_scratch_folder());
    command.insert(command.end(), {library, scratch});
    auto child = ChildProcess::start(command, ends.second.get());
    if (!child.ok()) {
      remove(scratch);
      child.error().hint = "install moetune-jit beside the program that uses moetune";
      return std::move(child).error();
    }
    return std::unique_ptr<Process>(
        new Process(std::move(child).value(), std::move(ends.first), std::move(scratch)));
  }

  ~Process() {
    child_.end();
    remove(scratch_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int socket() const { return socket_.get(); }

  // How a process that closed its socket ended: it is on its way out, by itself.
  std::string wait() { return child_.end(std::chrono::seconds(10)).text; }

 private:
  Process(ChildProcess child, Descriptor socket, std::string scratch)
      : child_(std::move(child)), socket_(std::move(socket)), scratch_(std::move(scratch)) {}

  static void remove(const std::string& scratch) {
    std::error_code ignored;
    fs::remove_all(scratch, ignored);
  }

  ChildProcess child_;
  Descriptor socket_;
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

std::vector<std::string> find_compile_worker() { return find_helper_program(kCompileWorkerName); }

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

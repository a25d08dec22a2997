// Compiler processes: as many programs at once as there are processes, whatever NVRTC locks; a
// compiler that crashes or hangs costs the program it was at and nothing else.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/compile.h"
#include "moetune/result.h"

namespace moetune::cuda {

/// The command that starts moetune-jit: beside the running program or in ../libexec/moetune. Empty
/// where it is in neither.
std::vector<std::string> find_compile_worker();

/// Thread-safe. Processes start when they are first needed and end with the pool.
class CompilerPool {
 public:
  /// `command` starts one process; `library` is NVRTC's file, which it gets as an argument.
  CompilerPool(std::vector<std::string> command, std::string library, int jobs);
  ~CompilerPool();
  CompilerPool(const CompilerPool&) = delete;
  CompilerPool& operator=(const CompilerPool&) = delete;

  /// Waits for a free process, then for its outcome. kDeadline where compiling took longer than
  /// `deadline` (the process is killed); kCompile where the process died; kIo, kNotFound where none
  /// can be started.
  Result<CompileOutcome> run(const CompileJob& job, std::chrono::milliseconds deadline);

 private:
  class Process;
  class Turn;
  Result<std::unique_ptr<Process>> take_process(bool fresh);

  const std::vector<std::string> command_;
  const std::string library_;
  std::mutex mutex_;
  std::condition_variable freed_;
  int free_turns_;
  std::vector<std::unique_ptr<Process>> idle_;
};

}  // namespace moetune::cuda

// A compiler in a process of its own: the other end of CompilerPool (cuda/compile_pool.h).
//
// Messages are MessagePack with a length (8 bytes, this machine's order) before each: a job, then
// its outcome, until the socket closes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/compile.h"
#include "moetune/result.h"

namespace moetune::cuda {

/// The name of the program that serves (src/cuda/compile_worker).
inline constexpr const char* kCompileWorkerName = "moetune-jit";

/// Serves compile jobs on `socket` with the NVRTC at `library`, until the other end closes. Returns
/// the exit status. main() of the helper program calls this with its arguments: LIBRARY
/// SCRATCH_FOLDER; the folder is removed at the end.
int serve_compile_jobs(int socket, const char* library, const char* scratch_folder);

std::vector<uint8_t> encode(const CompileJob& job);
std::vector<uint8_t> encode(const CompileOutcome& outcome);
/// kParse for anything that encode() does not make.
Result<CompileJob> decode_job(const std::vector<uint8_t>& message);
Result<CompileOutcome> decode_outcome(const std::vector<uint8_t>& message);

/// Sends one message. kIo where the other end is gone.
Status send_message(int socket, const std::vector<uint8_t>& message);
/// Waits for one message until `until` (none: for ever). Nothing where the other end closed;
/// kDeadline; kIo.
Result<std::optional<std::vector<uint8_t>>> receive_message(
    int socket, std::optional<std::chrono::steady_clock::time_point> until = std::nullopt);

}  // namespace moetune::cuda

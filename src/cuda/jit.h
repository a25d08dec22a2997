// Kernels compiled at run time: CUDA C++ sources that are part of this program, through NVRTC, to
// machine code.
//
//   Jit jit(JitOptions{});
//   CompileRequest request{.label = candidate.text(), .arch = device_arch,
//                          .source = "#include \"cuda/kernels/mma/gemm.cuh\"\n",
//                          .kernels = {"moetune::gemm<Config<64, 128, 4>>"}};
//   MOETUNE_ASSIGN_OR_RETURN(auto code, jit.compile(request));
//   MOETUNE_ASSIGN_OR_RETURN(auto module, Module::load(context, code));
//
// A request is answered from this process' memory, else from the cache on disk, else by the
// compiler. NVRTC up to 13.0 compiles one program at a time per process, so the compiler runs in
// helper processes: compiling is as parallel as there are cores, a compiler that crashes costs one
// tactic, and one that hangs is stopped.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/planner.h"
#include "moetune/result.h"

namespace moetune::cuda {

struct CompileRequest {
  std::string label;  ///< Whose kernels these are, for messages: a candidate's text. Not part of
                      ///< the identity.
  Architecture arch;  ///< What to compile for; need not be a device of this machine.
  /// The program. Includes name embedded sources from the root of src/ ("cuda/kernels/...") and
  /// come first, so that they can be precompiled. <cstdint>, <cstddef> and <type_traits> are there
  /// in small; nothing else of a host is.
  std::string source;
  std::vector<std::string>
      kernels;  ///< Name expressions: "moetune::gemm<64, 128>", "moetune::combine". At least one.
  std::vector<std::string> options;  ///< Further NVRTC options: "-DX=1", "--maxrregcount=128".
};

/// What one kernel takes, as the compiler reports it. Bytes per thread, except shared memory: per
/// block.
struct KernelResources {
  int registers = 0;
  int stack_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int static_shared_bytes = 0;
  bool operator==(const KernelResources&) const = default;
};

struct CompiledKernel {
  std::string expression;  ///< As requested.
  std::string symbol;      ///< Its name in the machine code.
  KernelResources resources;
  bool operator==(const CompiledKernel&) const = default;
};

/// Machine code of one program. Immutable.
struct CompiledProgram {
  Architecture arch;
  std::vector<CompiledKernel> kernels;  ///< In the order of the request.
  std::vector<std::byte> cubin;
  double compile_seconds = 0;  ///< What the compiler took when this was made; see `origin`.
  std::string compiler;        ///< "nvrtc 13.0"

  enum class Origin : uint8_t { kCompiled, kDisk, kMemory };
  Origin origin = Origin::kCompiled;  ///< Where this answer came from.
};
using CompiledProgramPtr = std::shared_ptr<const CompiledProgram>;

struct JitOptions {
  int jobs = 0;  ///< Compilers at work at once; 0: one per core.
  std::string cache_folder =
      "auto";               ///< "auto": $XDG_CACHE_HOME/moetune/jit; "": no cache on disk.
  int64_t cache_bytes = 0;  ///< Largest size of the cache; 0: $MOETUNE_JIT_CACHE_BYTES, else 1 GiB.
  std::chrono::milliseconds deadline{60'000};  ///< For one program; the compiler is stopped then.
  bool precompiled_header = true;              ///< Where NVRTC can (12.8 on).
  /// The program that serves as a compiler process; empty: moetune-jit beside the running
  /// executable or in
  /// ../libexec/moetune, else the compiler runs in this process, one program at a time where NVRTC
  /// has it so.
  std::vector<std::string> worker_command;
};

struct JitStatistics {
  uint64_t compiled = 0;
  uint64_t from_disk = 0;
  uint64_t from_memory = 0;
  uint64_t failed = 0;
  double compile_seconds = 0;  ///< Summed over compilers.
};

/// Compiles and remembers. Thread-safe: any number of compile() calls at once, of which `jobs` are
/// at work.
class Jit {
 public:
  explicit Jit(JitOptions options = {});
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  /// kCompile names the label and quotes the compiler's first errors; kDeadline; kUnsupported where
  /// there is no NVRTC of a version that the driver can take, or it does not know the architecture.
  Result<CompiledProgramPtr> compile(const CompileRequest& request);
  /// One answer per request, in their order; `jobs` at a time.
  std::vector<Result<CompiledProgramPtr>> compile_all(std::span<const CompileRequest> requests);

  /// Begins to compile these in the background, the first first, with all compilers but one. What
  /// an earlier call asked for and was not begun is forgotten. Errors are not told: compile() meets
  /// them again. Does not wait.
  void prefetch(std::vector<CompileRequest> requests);

  /// Whether compile() would find it in memory, or has seen it fail.
  bool has(const CompileRequest& request) const;

  JitStatistics statistics() const;
  /// What was noticed and did no harm: a corrupt entry replaced, a cache that cannot be written.
  /// Empties the list.
  std::vector<std::string> take_notes();

 private:
  struct State;
  /// What this process made before and still holds.
  std::optional<CompiledProgramPtr> in_memory(const std::string& identity);
  std::unique_ptr<State> state_;
};

/// The process-wide compiler with default options: what runners share.
Jit& default_jit();

/// Names of the embedded sources, as includes write them.
std::vector<std::string> embedded_source_names();

}  // namespace moetune::cuda

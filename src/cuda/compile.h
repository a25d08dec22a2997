// One program through NVRTC, in this process. The JIT (cuda/jit.h) puts processes, a cache and
// sources around it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/jit.h"
#include "cuda/nvrtc.h"
#include "moetune/result.h"

namespace moetune::cuda {

struct NamedText {
  std::string name;
  std::string text;
};

/// A program with everything it includes: what goes to a compiler process.
struct CompileJob {
  std::string source;
  std::vector<NamedText> headers;    ///< By the names that include them.
  std::vector<std::string> kernels;  ///< Name expressions.
  std::vector<std::string> options;  ///< All of NVRTC's, the architecture included.
  bool precompiled_header =
      false;  ///< Keep the parsed includes for the next job with the same ones.
};

struct CompileOutcome {
  bool ok = false;
  std::string log;                   ///< The compiler's words: errors, or the resource report.
  std::vector<std::string> symbols;  ///< One per kernel.
  std::vector<std::byte> cubin;
  double seconds = 0;
};

/// Runs the compiler. A program that does not compile is an outcome with ok == false and the log.
/// Thread-safe as NVRTC is: any number of threads, which NVRTC up to 13.0 makes wait for each
/// other.
CompileOutcome run_compiler(const Nvrtc& nvrtc, const CompileJob& job);

/// Reads what ptxas reports with -v: one entry per symbol, in that order. A symbol it says nothing
/// of keeps zeros.
std::vector<KernelResources> parse_resources(const std::string& log,
                                             const std::vector<std::string>& symbols);

/// The first error of a log with its context, at most `max_lines` lines; the whole beginning where
/// none is found.
std::string first_errors(const std::string& log, int max_lines);

}  // namespace moetune::cuda

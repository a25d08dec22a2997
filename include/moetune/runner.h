// TunableRunner: one implementation family of an operator, made for one problem.
//
// A runner says what it can do (schemes, spaces, layouts), what it does untuned (its default), and
// turns candidates into executables. It knows nothing of tuning; the tuner knows nothing of
// operators. They meet in named tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moetune/result.h"
#include "moetune/tactic.h"
#include "moetune/tensor.h"

namespace moetune {

/// An operator with concrete sizes: what a plan is made for. Holds everything that changes which
/// kernel is right, and nothing else (not the number of tokens, not the rank's own index). Two
/// problems are the same exactly when their keys are.
struct Problem {
  std::string op;  ///< "fused_moe", "my_axpy", ...
  std::map<std::string, std::string>
      attributes;  ///< Canonical texts: {"hidden", "2048"}, {"weights", "nvfp4"}, ...

  /// "fused_moe activation=swiglu experts=128 ...": attributes in alphabetical order.
  std::string key() const;
  bool operator==(const Problem&) const = default;
};

/// Weights in a runner's own layout, on the runner's device. Immutable after pack(); safe to share
/// between threads.
class PackedWeights {
 public:
  virtual ~PackedWeights() = default;
  virtual size_t bytes() const = 0;
};

/// Weights as the operator defines them, handed out in chunks (one expert, say) so that nobody
/// needs to hold them all unpacked. Thread-compatible.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual int64_t chunks() const = 0;
  /// The tensors of chunk `index` in host memory, valid until the next call.
  virtual Result<Tensors> chunk(int64_t index) = 0;
};

/// Receives weights chunk by chunk: the inverse of WeightSource.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// The tensors are valid during the call only.
  virtual Status chunk(int64_t index, const Tensors& tensors) = 0;
};

/// Everything one execution reads and writes. Built once and reused: only shape[0] and data
/// pointers change between calls.
struct Call {
  const Tensors* arguments = nullptr;  ///< Inputs then outputs, in the operator's documented order,
                                       ///< on the runner's device.
  const PackedWeights* weights =
      nullptr;  ///< From the same runner's pack(); null for operators without weights.
  void* workspace =
      nullptr;  ///< On the device, 256-byte aligned, at least workspace_bytes() of the candidate.
  size_t workspace_bytes = 0;
  void* stream = nullptr;  ///< A CUstream on GPU; ignored on CPU.
};

/// A compiled candidate. run() neither allocates, compiles nor synchronises with the host, and can
/// be captured in a graph. Serves every number of tokens up to the one it was compiled for. One
/// thread at a time per workspace.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual Status run(const Call& call) = 0;
  /// Runs one stage alone, on the intermediates a complete run() of the same call left in the
  /// workspace; for timing a stage by itself. Whoever cannot do so runs everything.
  virtual Status run_stage(int stage, const Call& call) {
    (void)stage;
    return run(call);
  }
};

struct StageSpace {
  std::string name;  ///< "gemm1", "gemm2"; "main" for a runner with one stage.
  Space space;
};

/// How stages are joined, and the space of each.
struct Scheme {
  std::string name;  ///< "separate", "fused", ...; "single" for a runner with one stage.
  std::vector<StageSpace> stages;
};

/// Thread-safety: const members may be called at once; compile() may be called at once with itself.
class TunableRunner {
 public:
  virtual ~TunableRunner() = default;

  virtual std::string name() const = 0;
  /// Raised whenever the kernels change their meaning or their speed: what was measured with
  /// another version is stale.
  virtual int version() const { return 1; }
  /// At least one, the default's first.
  virtual const std::vector<Scheme>& schemes() const = 0;
  /// What runs when nothing was tuned: chosen by a written heuristic, valid at every `tokens` >= 1,
  /// of one layout for all of them.
  virtual Candidate default_candidate(int64_t tokens) const = 0;

  /// The same for weights that were packed in another of the runner's layouts: what runs where a
  /// plan of that layout has nothing better.
  virtual Candidate default_in_layout(const std::string& layout, int64_t tokens) const {
    (void)layout;
    return default_candidate(tokens);
  }

  /// All layouts that candidates of this runner read, the default's first.
  virtual std::vector<std::string> layouts() const { return {layout(default_candidate(1))}; }
  /// The weight layout a candidate reads, one of layouts(). Candidates of one plan share a layout.
  virtual std::string layout(const Candidate&) const { return "plain"; }
  /// Why a candidate cannot be used at `tokens`, beyond what its stages' spaces exclude (stages
  /// that do not fit together, say). Empty: it can.
  virtual std::string why_excluded(const Candidate&, int64_t tokens) const {
    (void)tokens;
    return {};
  }
  /// Whether the candidate gives the same bits whenever it runs on the same inputs and weights, at
  /// the same number of tokens and on any number of threads: every sum in an order that is fixed,
  /// no floating-point additions in the order in which threads happen to come. A runner that has
  /// others says so here; its defaults must not be among them.
  virtual bool is_deterministic(const Candidate&) const { return true; }
  /// Whether the operator's exact problem (TuneRequest::exact_bench) can be run with these kernels:
  /// another activation, say, which kernels of others may not have. Where it cannot, what wins is
  /// right only as far as the close check sees.
  virtual bool has_exact_check() const { return true; }
  /// Device memory the candidate needs beside arguments and weights, at any number of tokens up to
  /// `tokens`.
  virtual size_t workspace_bytes(const Candidate&, int64_t tokens) const {
    (void)tokens;
    return 0;
  }

  /// Makes the candidate runnable for 1..max_tokens. kCompile with a readable reason, naming the
  /// tactic, where that fails.
  virtual Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                                      int64_t max_tokens) = 0;

  /// A hint that these will be compiled soon, the first first: who compiles slowly begins in the
  /// background. Replaces what an earlier hint asked for and was not begun. Never blocks and never
  /// fails: errors come from compile().
  virtual void prefetch(std::span<const Candidate> candidates) { (void)candidates; }

  /// Whether compile() would take no time, as far as is known. Never blocks.
  virtual bool is_compiled(const Candidate& candidate) const {
    (void)candidate;
    return true;
  }

  /// Brings weights into a layout. The source may have fewer chunks than the problem has experts:
  /// then nothing is routed to the others. The default is for operators without weights.
  virtual Result<std::shared_ptr<PackedWeights>> pack(const std::string& layout,
                                                      WeightSource& source);
  /// The exact inverse of pack().
  virtual Status unpack(const PackedWeights& weights, WeightSink& sink) const;
};

}  // namespace moetune

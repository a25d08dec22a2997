#include "cuda/mma/runner.h"

#include <fmt/format.h>

#include <mutex>

#include "base/status_macros.h"
#include "cuda/mma/layer.h"
#include "cuda/mma/space.h"

namespace moetune::cuda {
namespace {

constexpr int kOldestArchitecture = 80;
constexpr const char* kName = "cuda.mma";
constexpr int kVersion = 1;
constexpr const char* kLayoutName = "fragments";

class MmaRunner : public TunableRunner {
 public:
  MmaRunner(const FusedMoeSpec& spec, const ContextPtr& context)
      : spec_(spec),
        layout_(weight_layout(spec)),
        context_(context),
        schemes_(make_schemes(spec, context->limits())) {}

  std::string name() const override { return kName; }
  int version() const override { return kVersion; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }

  Candidate default_candidate(int64_t tokens) const override {
    Candidate candidate = default_tactics(spec_, context_->limits(), tokens);
    candidate.runner = kName;
    candidate.runner_version = kVersion;
    return candidate;
  }

  std::string layout(const Candidate&) const override { return kLayoutName; }

  /// Warps that share a sum meet in a fixed order, and rows are added in the order of a token's
  /// slots. The one atomic operation, on integers, decides where in its expert's tile a row stands:
  /// which column of a matrix multiplication a token is in, and no column's sum depends on that.
  bool is_deterministic(const Candidate&) const override { return true; }

  size_t workspace_bytes(const Candidate& candidate, int64_t tokens) const override {
    const Result<Gemms> gemms = gemms_of(candidate);
    if (!gemms.ok()) return 0;
    return workspace_layout(spec_, layout_, gemms.value().first, gemms.value().second, tokens)
        .bytes;
  }

  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    MOETUNE_ASSIGN_OR_RETURN(const Gemms gemms, gemms_of(candidate));
    return MmaLayer::compile(context_, spec_, gemms.first, gemms.second, max_tokens,
                             candidate.text());
  }

  void prefetch(std::span<const Candidate> candidates) override {
    std::vector<CompileRequest> requests;
    for (const Candidate& candidate : candidates) {
      const Result<Gemms> gemms = gemms_of(candidate);
      if (!gemms.ok()) continue;
      for (CompileRequest& request :
           MmaLayer::programs(context_, spec_, gemms->first, gemms->second, candidate.text()))
        requests.push_back(std::move(request));
    }
    default_jit().prefetch(std::move(requests));
  }

  bool is_compiled(const Candidate& candidate) const override {
    const Result<Gemms> gemms = gemms_of(candidate);
    if (!gemms.ok()) return true;  // compile() says why not.
    const auto programs =
        MmaLayer::programs(context_, spec_, gemms->first, gemms->second, candidate.text());
    return std::all_of(programs.begin(), programs.end(),
                       [](const CompileRequest& program) { return default_jit().has(program); });
  }

  Result<std::shared_ptr<PackedWeights>> pack(const std::string&, WeightSource& source) override {
    const std::scoped_lock lock(packer_mutex_);
    MOETUNE_ASSIGN_OR_RETURN(auto packer, MmaPacker::make(context_, spec_));
    return packer->pack(source);
  }

  Status unpack(const PackedWeights& weights, WeightSink& sink) const override {
    const auto* own = dynamic_cast<const MmaWeights*>(&weights);
    if (own == nullptr)
      return Error{ErrorCode::kInvalidArgument, "weights that cuda.mma did not pack"};
    const std::scoped_lock lock(packer_mutex_);
    MOETUNE_ASSIGN_OR_RETURN(auto packer, MmaPacker::make(context_, spec_));
    return packer->unpack(*own, sink);
  }

 private:
  using Gemms = std::pair<GemmTactic, GemmTactic>;

  static Result<Gemms> gemms_of(const Candidate& candidate) {
    const SchemePaths* paths = find_scheme(candidate.scheme);
    if (paths == nullptr || candidate.stages.size() != 2) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} is no candidate of {}", candidate.text(), kName)};
    }
    return Gemms{read_gemm_tactic(paths->gemm1, candidate.stages[0].tactic),
                 read_gemm_tactic(paths->gemm2, candidate.stages[1].tactic)};
  }

  FusedMoeSpec spec_;
  WeightLayout layout_;
  ContextPtr context_;
  std::vector<Scheme> schemes_;
  mutable std::mutex packer_mutex_;
};

}  // namespace

Result<std::unique_ptr<TunableRunner>> make_mma_runner(const FusedMoeSpec& spec,
                                                       const ContextPtr& context) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  if (std::string reason = why_unsupported(spec); !reason.empty()) {
    return Error{ErrorCode::kUnsupported, std::move(reason),
                 "use another device, or other number formats"};
  }
  if (context->architecture().sm() < kOldestArchitecture) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("cuda.mma needs sm_80 (Ampere) or later, {} is {}", context->name(),
                             context->architecture().text())};
  }
  return std::unique_ptr<TunableRunner>(std::make_unique<MmaRunner>(spec, context));
}

}  // namespace moetune::cuda

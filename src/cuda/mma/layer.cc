#include "cuda/mma/layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/integers.h"
#include "base/status_macros.h"
#include "cuda/mma/programs.h"

namespace moetune::cuda {
namespace {

constexpr int64_t kFewPairs = 32;  // route.cuh: one warp groups them
constexpr int64_t kOneBlockTokens =
    16;  // routed and grouped by one block: beyond, routing alone takes it longer than a launch
constexpr unsigned kGroupThreads = kernels::kGroupThreads;

unsigned blocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

// Experts a lane of the router holds: the template's values are powers of two.
int experts_per_lane(int64_t experts) {
  int per_lane = 2;
  while (per_lane * 32 < experts) per_lane *= 2;
  return per_lane;
}

ProgramRequest gemm_request(const std::string& label, const GemmTactic& tactic,
                            const WeightLayout& layout, const GemmRole& role) {
  return {label,
          kernel_source(tactic.path),
          {kernel_expression(tactic, layout, role)},
          dynamic_shared_bytes(tactic, *role.matrix)};
}

}  // namespace

/// Device addresses of a whole call.
struct MmaLayer::Inputs {
  int64_t tokens = 0;
  const uint16_t* hidden = nullptr;
  const float* logits = nullptr;
  const float* router_bias = nullptr;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  const int32_t* first_expert = nullptr;
  uint8_t* output = nullptr;
};

/// Those of the tokens of one pass, and its part of everything else.
struct MmaLayer::Pass {
  Inputs in;
  const MmaWeights* weights = nullptr;
  uint8_t* workspace = nullptr;
  WorkspaceLayout at;
  CUstream stream = nullptr;
  int tokens = 0;
  int pairs = 0;

  template <typename T>
  T* in_workspace(size_t offset) const {
    return reinterpret_cast<T*>(workspace + offset);
  }
  bool own_routing = false;  ///< In the workspace: routed here, or given with something added.
  const int* ids() const { return own_routing ? in_workspace<int>(at.ids) : in.ids; }
  const float* routing_weights() const {
    return own_routing ? in_workspace<float>(at.weights) : in.weights;
  }
};

MmaLayer::MmaLayer(const ContextPtr& context, const FusedMoeSpec& spec, const GemmTactic& gemm1,
                   const GemmTactic& gemm2, int64_t max_tokens)
    : context_(context),
      spec_(spec),
      layout_(weight_layout(spec)),
      gemm1_(gemm1),
      gemm2_(gemm2),
      max_tokens_(max_tokens),
      workspace_bytes_(workspace_layout(spec, layout_, gemm1, gemm2, max_tokens).bytes),
      programmatic_(context->architecture().sm() >= 90) {}

Result<std::shared_ptr<Executable>> MmaLayer::compile(const ContextPtr& context,
                                                      const FusedMoeSpec& spec,
                                                      const GemmTactic& gemm1,
                                                      const GemmTactic& gemm2, int64_t max_tokens,
                                                      const std::string& label) {
  std::shared_ptr<MmaLayer> layer(new MmaLayer(context, spec, gemm1, gemm2, max_tokens));
  MOETUNE_RETURN_IF_ERROR(layer->load(label));
  return std::shared_ptr<Executable>(std::move(layer));
}

std::vector<CompileRequest> MmaLayer::programs(const ContextPtr& context, const FusedMoeSpec& spec,
                                               const GemmTactic& gemm1, const GemmTactic& gemm2,
                                               const std::string& label) {
  std::vector<CompileRequest> programs;
  for (const ProgramRequest& request : MmaLayer(context, spec, gemm1, gemm2, 1).requests(label)) {
    programs.push_back(compile_request(request, context->architecture()));
  }
  return programs;
}

std::vector<ProgramRequest> MmaLayer::requests(const std::string& label) const {
  const int per_lane = experts_per_lane(spec_.global_experts);
  const bool f32 = spec_.output == DataType::kF32;
  auto routed = [&](const char* name) {
    return fmt::format("moetune::kernels::{}<{}>", name, per_lane);
  };
  auto plain = [](const char* name) { return fmt::format("moetune::kernels::{}<0>", name); };
  const GemmRole role1{&layout_.w13, layout_.epilogue, static_cast<int>(aligned_columns(spec_)),
                       false};
  const GemmRole role2{&layout_.w2, kernels::kIdentity, layout_.activation_columns, f32};
  return {
      {"routing for cuda.mma",
       "cuda/kernels/route.cuh",
       {routed("route"), routed("route_and_group"), routed("route_and_group_few"),
        plain("group_few_pairs"), plain("group_pairs"), plain("group_count"), plain("group_place"),
        plain("append_shared")}},
      {"combine for cuda.mma",
       "cuda/kernels/combine.cuh",
       {fmt::format("moetune::kernels::combine<{}>", f32), plain("align_rows"),
        plain("round_rows")}},
      gemm_request(label, gemm1_, layout_, role1),
      gemm_request(label, gemm2_, layout_, role2),
  };
}

Status MmaLayer::load(const std::string& label) {
  MOETUNE_ASSIGN_OR_RETURN(const auto programs, load_programs(context_, requests(label)));
  Kernel* routing[] = {&route_, &route_and_group_, &route_and_group_few_, &group_few_,
                       &group_, &group_count_,     &group_place_,         &append_shared_};
  for (size_t i = 0; i < std::size(routing); ++i) *routing[i] = programs[0][i];
  combine_ = programs[1][0];
  align_ = programs[1][1];
  round_ = programs[1][2];
  gemm1_kernel_ = programs[2][0];
  gemm2_kernel_ = programs[3][0];
  return {};
}

Result<MmaLayer::Inputs> MmaLayer::inputs_of(const Call& call) const {
  const Tensors& a = *call.arguments;
  const size_t count = 2 + (spec_.given_routing ? 2 : 1 + (spec_.router.selection_bias ? 1 : 0)) +
                       (spec_.ep > 1 ? 1 : 0);
  if (a.size() != count) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: {} arguments, not {}", a.size(), count),
                 "moetune/moe_spec.h lists them"};
  }
  Inputs in;
  size_t next = 0;
  in.tokens = a[next].shape.empty() ? 0 : a[next].shape.front();
  in.hidden = a[next++].as<const uint16_t>();
  if (spec_.given_routing) {
    in.ids = a[next++].as<const int32_t>();
    in.weights = a[next++].as<const float>();
  } else {
    in.logits = a[next++].as<const float>();
    if (spec_.router.selection_bias) in.router_bias = a[next++].as<const float>();
  }
  if (spec_.ep > 1) in.first_expert = a[next++].as<const int32_t>();
  in.output = a[next].as<uint8_t>();
  if (in.tokens > max_tokens_) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: {} tokens, the candidate was compiled for {} at the most",
                             in.tokens, max_tokens_)};
  }
  if (!copies_hidden(spec_) && reinterpret_cast<uintptr_t>(in.hidden) % 16 != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "fused_moe: hidden states do not begin at a multiple of 16 bytes"};
  }
  // combine.cuh stores four values at a time.
  const bool has_wide_stores = spec_.output == DataType::kBf16 && spec_.hidden % 4 == 0;
  if (has_wide_stores && reinterpret_cast<uintptr_t>(in.output) % 8 != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "fused_moe: the output does not begin at a multiple of 8 bytes"};
  }
  if (call.workspace_bytes < workspace_bytes_) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: a workspace of {} bytes, {} are needed",
                             call.workspace_bytes, workspace_bytes_)};
  }
  return in;
}

Status MmaLayer::run(const Call& call) { return run_parts(call, kEverything); }

Status MmaLayer::run_stage(int stage, const Call& call) {
  if (call.arguments->front().shape.front() > kPassTokens)
    return run(call);  // The workspace holds the last pass alone.
  return run_parts(call, stage == 0 ? kGemm1 : kGemm2 | kCombine);
}

Status MmaLayer::run_parts(const Call& call, unsigned parts) {
  MOETUNE_ASSIGN_OR_RETURN(const Inputs in, inputs_of(call));
  MOETUNE_ASSIGN_OR_RETURN(const ContextScope scope, ContextScope::enter(*context_));
  Pass pass;
  pass.weights = static_cast<const MmaWeights*>(call.weights);
  pass.workspace = static_cast<uint8_t*>(call.workspace);
  pass.stream = static_cast<CUstream>(call.stream);
  pass.own_routing = !spec_.given_routing || spec_.shared_experts > 0;
  const int64_t output_bytes = spec_.output == DataType::kF32 ? 4 : 2;
  for (int64_t done = 0; done < in.tokens; done += kPassTokens) {
    pass.tokens = static_cast<int>(std::min(in.tokens - done, kPassTokens));
    pass.pairs = pass.tokens * spec_.slots();
    pass.at = workspace_layout(spec_, layout_, gemm1_, gemm2_, pass.tokens);
    pass.in = in;
    pass.in.hidden += done * spec_.hidden;
    pass.in.output += done * spec_.hidden * output_bytes;
    if (in.logits) pass.in.logits += done * spec_.global_experts;
    if (in.ids) pass.in.ids += done * spec_.top_k;
    if (in.weights) pass.in.weights += done * spec_.top_k;
    MOETUNE_RETURN_IF_ERROR(run_pass(pass, parts));
  }
  return {};
}

Status MmaLayer::run_pass(const Pass& pass, unsigned parts) const {
  bool first = true;
  if (parts & kGroup) {
    MOETUNE_RETURN_IF_ERROR(route_and_group(pass, first));
    if (copies_hidden(spec_)) MOETUNE_RETURN_IF_ERROR(copy_hidden(pass, first));
  }
  if (parts & kGemm1) {
    MOETUNE_RETURN_IF_ERROR(run_gemm1(pass, first));
    if (rounds_activations(spec_)) MOETUNE_RETURN_IF_ERROR(round_h(pass, first));
  }
  if (parts & kGemm2) MOETUNE_RETURN_IF_ERROR(run_gemm2(pass, first));
  if ((parts & kCombine) && gemm2_.path != GemmPath::kCombine)
    MOETUNE_RETURN_IF_ERROR(run_combine(pass, first));
  return {};
}

LaunchShape MmaLayer::shape(unsigned x, unsigned y, unsigned threads, bool& first) const {
  LaunchShape s;
  s.grid_x = x;
  s.grid_y = y;
  s.threads = threads;
  s.programmatic = programmatic_ && !first;
  first = false;
  return s;
}

Status MmaLayer::route_and_group(const Pass& pass, bool& first) const {
  kernels::GroupParams g = {};
  g.ids = pass.ids();
  g.first_expert = pass.in.first_expert;
  g.row_of_pair = pass.in_workspace<int>(pass.at.row_of_pair);
  g.token_of_row = pass.in_workspace<int>(pass.at.token_of_row);
  g.tiles[0] = pass.in_workspace<kernels::Tile>(pass.at.tiles[0]);
  g.tiles[1] = pass.in_workspace<kernels::Tile>(pass.at.tiles[1]);
  g.tile_counts = pass.in_workspace<int>(pass.at.tile_counts);
  g.histograms = pass.in_workspace<int>(pass.at.histograms);
  g.tile_tokens[0] = gemm1_.token_tile;
  g.tile_tokens[1] = gemm2_.token_tile;
  g.tokens = pass.tokens;
  g.top_k = spec_.slots();
  g.experts = static_cast<int>(spec_.held_experts());
  if (spec_.given_routing) {
    if (spec_.shared_experts > 0) MOETUNE_RETURN_IF_ERROR(append_shared(pass, first));
    return group(pass, g, first);
  }

  const RouterSpec& router = spec_.router;
  kernels::RouteParams r = {};
  r.logits = pass.in.logits;
  r.bias = pass.in.router_bias;
  r.ids = pass.in_workspace<int>(pass.at.ids);
  r.weights = pass.in_workspace<float>(pass.at.weights);
  r.tokens = pass.tokens;
  r.experts = static_cast<int>(spec_.global_experts);
  r.top_k = spec_.top_k;
  r.shared = spec_.shared_experts;
  r.score = static_cast<int>(router.score);
  r.score_after_top_k = router.score_after_top_k ? 1 : 0;
  r.renormalise = router.renormalise ? 1 : 0;
  r.groups = router.groups;
  r.top_groups = router.top_groups;
  r.scale = router.scale;
  if (pass.pairs <= kFewPairs) {
    return route_and_group_few_(shape(1, 1, 32 * static_cast<unsigned>(pass.tokens), first),
                                pass.stream, r, g);
  }
  if (pass.tokens <= kOneBlockTokens)
    return route_and_group_(shape(1, 1, kGroupThreads, first), pass.stream, r, g);
  MOETUNE_RETURN_IF_ERROR(route_(shape(blocks(pass.tokens, 8), 1, 256, first), pass.stream, r));
  return group(pass, g, first);
}

Status MmaLayer::group(const Pass& pass, const kernels::GroupParams& p, bool& first) const {
  if (pass.pairs <= kFewPairs) return group_few_(shape(1, 1, 32, first), pass.stream, p);
  if (pass.pairs <= kernels::kPairsPerGroupBlock)
    return group_(shape(1, 1, kGroupThreads, first), pass.stream, p);
  const unsigned count = blocks(pass.pairs, kernels::kPairsPerGroupBlock);
  MOETUNE_RETURN_IF_ERROR(group_count_(shape(count, 1, kGroupThreads, first), pass.stream, p));
  return group_place_(shape(count, 1, kGroupThreads, first), pass.stream, p);
}

Status MmaLayer::append_shared(const Pass& pass, bool& first) const {
  kernels::AppendParams p = {};
  p.ids = pass.in.ids;
  p.weights = pass.in.weights;
  p.all_ids = pass.in_workspace<int>(pass.at.ids);
  p.all_weights = pass.in_workspace<float>(pass.at.weights);
  p.tokens = pass.tokens;
  p.experts = static_cast<int>(spec_.experts);
  p.top_k = spec_.top_k;
  p.shared = spec_.shared_experts;
  return append_shared_(shape(blocks(pass.pairs, 256), 1, 256, first), pass.stream, p);
}

Status MmaLayer::copy_hidden(const Pass& pass, bool& first) const {
  const int columns = static_cast<int>(spec_.hidden),
            stride = static_cast<int>(aligned_columns(spec_));
  if (rounds_activations(spec_)) {
    return round_rows(
        pass,
        {pass.in.hidden, pass.in_workspace<uint16_t>(pass.at.own_hidden),
         pass.in_workspace<float>(pass.at.hidden_scales), pass.tokens, columns, columns, stride},
        first);
  }
  const kernels::AlignParams p = {pass.in.hidden, pass.in_workspace<uint16_t>(pass.at.own_hidden),
                                  pass.tokens, columns, stride};
  return align_(shape(blocks(int64_t{p.rows} * p.stride, 256), 1, 256, first), pass.stream, p);
}

// How many rows there are is known on the device alone: those past them hold anything, and nobody
// reads them.
Status MmaLayer::round_h(const Pass& pass, bool& first) const {
  auto* h = pass.in_workspace<uint16_t>(pass.at.activations);
  return round_rows(pass,
                    {h, h, pass.in_workspace<float>(pass.at.activation_scales), pass.pairs,
                     static_cast<int>(spec_.intermediate), layout_.activation_columns,
                     layout_.activation_columns},
                    first);
}

Status MmaLayer::round_rows(const Pass& pass, const kernels::RoundParams& p, bool& first) const {
  constexpr int64_t kBlocksPerLaunchBlock = 8;
  const int64_t work = int64_t{p.rows} * ceil_div(p.target_stride, kernels::kFp8BlockSize);
  return round_(shape(blocks(work, kBlocksPerLaunchBlock), 1, 256, first), pass.stream, p);
}

kernels::GemmParams MmaLayer::gemm_params(const Pass& pass, int matrix) const {
  const MatrixLayout& m = matrix == 0 ? layout_.w13 : layout_.w2;
  const MmaWeights& w = *pass.weights;
  kernels::GemmParams p = {};
  p.weights = reinterpret_cast<const kernels::u8*>(matrix == 0 ? w.w13() : w.w2());
  p.scales = reinterpret_cast<const float*>(matrix == 0 ? w.w13_scales() : w.w2_scales());
  p.bias = reinterpret_cast<const float*>(matrix == 0 ? w.w13_bias() : w.w2_bias());
  p.tiles = pass.in_workspace<kernels::Tile>(pass.at.tiles[matrix]);
  p.tile_count = pass.in_workspace<int>(pass.at.tile_counts) + matrix;
  if (rounds_activations(spec_))
    p.input_scales =
        pass.in_workspace<float>(matrix == 0 ? pass.at.hidden_scales : pass.at.activation_scales);
  p.expert_bytes = m.expert_bytes;
  p.units = m.units;
  p.groups = m.groups;
  p.sets = (matrix == 0 ? gemm1_ : gemm2_).sets;
  return p;
}

LaunchShape MmaLayer::gemm_shape(const Pass& pass, const GemmTactic& t,
                                 const MatrixLayout& m) const {
  LaunchShape s;
  s.grid_x = blocks(m.groups, t.groups_per_block());
  s.grid_y = static_cast<unsigned>(most_tiles(pass.pairs, spec_.held_experts(), t.token_tile));
  s.threads = static_cast<unsigned>(t.threads());
  s.shared_bytes = static_cast<unsigned>(dynamic_shared_bytes(t, m));
  return s;
}

Status MmaLayer::run_gemm1(const Pass& pass, bool& first) const {
  kernels::GemmParams p = gemm_params(pass, 0);
  p.input = copies_hidden(spec_) ? pass.in_workspace<uint16_t>(pass.at.own_hidden) : pass.in.hidden;
  p.input_stride = static_cast<int>(aligned_columns(spec_));
  p.k = p.input_stride;
  p.row_index = pass.in_workspace<int>(pass.at.token_of_row);
  p.output = pass.in_workspace<uint16_t>(pass.at.activations);
  p.output_stride = layout_.activation_columns;
  LaunchShape s = gemm_shape(pass, gemm1_, layout_.w13);
  s.programmatic = programmatic_ && !first;
  first = false;
  return gemm1_kernel_(s, pass.stream, p);
}

Status MmaLayer::run_gemm2(const Pass& pass, bool& first) const {
  kernels::GemmParams p = gemm_params(pass, 1);
  p.input = pass.in_workspace<uint16_t>(pass.at.activations);
  p.input_stride = layout_.activation_columns;
  p.k = layout_.activation_columns;
  p.output = pass.in_workspace<float>(pass.at.rows);
  p.output_stride = layout_.w2.groups * kernels::kGroupRows;
  if (gemm2_.path != GemmPath::kCombine) {
    LaunchShape s = gemm_shape(pass, gemm2_, layout_.w2);
    s.programmatic = programmatic_ && !first;
    first = false;
    return gemm2_kernel_(s, pass.stream, p);
  }
  p.output = pass.in.output;
  kernels::GemmCombineParams c = {};
  c.gemm = p;
  c.ids = pass.ids();
  c.weights = pass.routing_weights();
  c.row_of_pair = pass.in_workspace<int>(pass.at.row_of_pair);
  c.first_expert = pass.in.first_expert;
  c.columns = static_cast<int>(spec_.hidden);
  c.tokens = pass.tokens;
  c.top_k = spec_.slots();
  c.experts = static_cast<int>(spec_.held_experts());
  return gemm2_kernel_(
      shape(blocks(layout_.w2.groups, gemm2_.groups), static_cast<unsigned>(pass.tokens),
            static_cast<unsigned>(gemm2_.threads()), first),
      pass.stream, c);
}

Status MmaLayer::run_combine(const Pass& pass, bool& first) const {
  kernels::CombineParams p = {};
  p.rows = pass.in_workspace<float>(pass.at.rows);
  p.weights = pass.routing_weights();
  p.row_of_pair = pass.in_workspace<int>(pass.at.row_of_pair);
  p.output = pass.in.output;
  p.row_stride = layout_.w2.groups * kernels::kGroupRows;
  p.columns = static_cast<int>(spec_.hidden);
  p.tokens = pass.tokens;
  p.top_k = spec_.slots();
  return combine_(shape(blocks(spec_.hidden, 1024), static_cast<unsigned>(pass.tokens), 256, first),
                  pass.stream, p);
}

}  // namespace moetune::cuda

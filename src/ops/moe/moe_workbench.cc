#include "ops/moe/moe_workbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/bf16.h"
#include "base/status_macros.h"
#include "ops/moe/arguments.h"
#include "ops/moe/reference.h"
#include "ops/moe/verify.h"
#include "ops/moe/workload.h"

namespace moetune {

namespace {

// Of outputs that others are compared with, over all calls: 12 k rows of 6144 values. What a
// reference says of a few rows is kept of every call.
constexpr size_t kAgreedBytes = size_t{256} << 20;
// Rows of a first look, at least.
constexpr int64_t kRowsOfALook = 64;

// As a logit: no router of ours chooses this expert while it has others.
constexpr float kNeverChosen = -1e30f;

// The first `count` chunks of a source.
class FirstChunks final : public WeightSource {
 public:
  FirstChunks(WeightSource& all, int64_t count) : all_(all), count_(count) {}
  int64_t chunks() const override { return count_; }
  Result<Tensors> chunk(int64_t index) override { return all_.chunk(index); }

 private:
  WeightSource& all_;
  int64_t count_;
};

// Spreads routing over the first `few` experts to a router that sees `all` of them.
void widen_logits(Routing& routing, int64_t few, int64_t all) {
  std::vector<float> wide(static_cast<size_t>(routing.tokens * all), kNeverChosen);
  for (int64_t token = 0; token < routing.tokens; ++token) {
    std::copy_n(routing.logits.begin() + token * few, few, wide.begin() + token * all);
  }
  routing.logits = std::move(wide);
  if (!routing.router_bias.empty())
    routing.router_bias.resize(static_cast<size_t>(all), kNeverChosen);
}

// Rows of a bf16 or f32 output as the values that other candidates are compared with.
std::vector<float> values_of(const Tensor& rows) {
  std::vector<float> values(static_cast<size_t>(rows.values()));
  if (rows.type == DataType::kBf16) {
    std::transform(rows.as<const uint16_t>(), rows.as<const uint16_t>() + values.size(),
                   values.begin(), bf16_to_float);
  } else {
    std::copy_n(rows.as<const float>(), values.size(), values.begin());
  }
  return values;
}

// What is known to be right of one call, under one way of rounding.
struct Right {
  ReferenceRows reference;
  std::optional<ReferenceRows>
      agreed;  // All rows that were seen, of the first candidate that matched `reference`.
};

struct Expected {
  Case what;
  Scale scale = Scale::kFull;
  int sample = 0;
  std::vector<Right> right;   // The definition's first.
  std::vector<int64_t> look;  // Rows of a first look, ascending.

  bool is_of(const Case& c, Scale s, int n) const { return what == c && scale == s && sample == n; }
};

class MoeWorkbench final : public Workbench {
 public:
  MoeWorkbench(FusedMoeSpec spec, MoeWorkbenchOptions options,
               std::unique_ptr<WeightSource> weights)
      : spec_(std::move(spec)),
        options_(options),
        problem_(moe_problem(spec_)),
        weights_(std::move(weights)),
        subset_(*weights_, subset_experts(spec_, options.last_level_cache_bytes)) {}

  const Problem& problem() const override { return problem_; }

  WeightSource& weights(Scale scale) override {
    if (scale == Scale::kSubset) return subset_;
    return *weights_;
  }

  Result<Tensors> arguments(const Case& c, Scale scale, int sample) override {
    MOETUNE_ASSIGN_OR_RETURN(inputs_, inputs(c, scale, sample));
    if (sample == 0) first_inputs_ = {c, scale, inputs_};
    return call_arguments(spec_, inputs_, nullptr);
  }

  int outputs() const override { return 1; }

  std::vector<int64_t> check_rows(const Case& c, Scale scale, int /*sample*/) override {
    std::vector<int64_t> rows(static_cast<size_t>(tokens(c, scale)));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    return rows;
  }

  std::vector<int64_t> look_rows(const Case& c, Scale scale, int sample) override {
    Expected& expected = expect(c, scale, sample);
    if (tokens(c, scale) <= kRowsOfALook || !refer(expected).ok())
      return check_rows(c, scale, sample);  // judge() tells what there is to tell.
    return expected.look;
  }

  Verdict judge(const Case& c, Scale scale, int sample, std::span<const int64_t> rows,
                const Tensors& outputs) override {
    const Tensor* output = find(outputs, "output");
    if (output == nullptr || output->shape.size() != 2 ||
        output->shape[0] != static_cast<int64_t>(rows.size()) || output->shape[1] != spec_.hidden) {
      return {false, "the output does not have the rows that were asked for"};
    }
    Expected& expected = expect(c, scale, sample);
    if (Status status = refer(expected); !status.ok())
      return {false, "no reference: " + status.error().message};
    Verdict by_definition;
    for (Right& right : expected.right) {
      Verdict verdict = judge_rows(expected, right, rows, *output);
      if (verdict.ok) return verdict;
      if (&right == &expected.right.front()) by_definition = std::move(verdict);
    }
    return by_definition;
  }

  // Asked for again and again, while the routing alone takes milliseconds to make.
  Work work(const Case& c, Scale scale, int sample) override {
    const auto key = std::make_tuple(c.tokens, c.workload, c.seed, scale, sample);
    const auto [known, is_new] = work_.try_emplace(key);
    if (!is_new) return known->second;
    const auto workload = workload_of(c);
    if (!workload.ok()) return {};
    const auto routing = make_routing(routed_spec(scale), **workload, tokens(c, scale), c.seed,
                                      static_cast<uint64_t>(sample), options_.threads);
    if (!routing.ok()) return {};
    std::vector<int64_t> rows = rows_per_expert(routing->ids, 0, spec_.experts);
    rows.insert(rows.end(), static_cast<size_t>(spec_.shared_experts), routing->tokens);
    return known->second = moe_work(spec_, rows, routing->tokens);
  }

 private:
  int64_t tokens(const Case& c, Scale scale) const {
    return scale == Scale::kFull ? c.tokens
                                 : subset_tokens(spec_, options_.last_level_cache_bytes, c.tokens);
  }

  Result<const Workload*> workload_of(const Case& c) {
    auto workload = workloads_.find(c.workload);
    if (workload == workloads_.end()) {
      MOETUNE_ASSIGN_OR_RETURN(Workload parsed, parse_workload(c.workload));
      workload = workloads_.emplace(c.workload, std::move(parsed)).first;
    }
    return &workload->second;
  }

  // As traffic sees it: at a smaller scale there are fewer experts.
  FusedMoeSpec routed_spec(Scale scale) const {
    FusedMoeSpec routed = spec_;
    const int64_t few = scale == Scale::kSubset ? subset_.chunks() : spec_.held_experts();
    if (few < spec_.experts) routed.experts = routed.global_experts = few;
    return routed;
  }

  Result<MoeInputs> inputs(const Case& c, Scale scale, int sample) {
    MOETUNE_ASSIGN_OR_RETURN(const Workload* workload, workload_of(c));
    const FusedMoeSpec routed = routed_spec(scale);
    MOETUNE_ASSIGN_OR_RETURN(MoeInputs made,
                             make_inputs(routed, *workload, tokens(c, scale), options_.kind, c.seed,
                                         static_cast<uint64_t>(sample), 0, options_.threads));
    if (routed.experts < spec_.experts)
      widen_logits(made.routing, routed.experts, spec_.global_experts);
    return made;
  }

  std::span<const Rounding> roundings() const {
    static constexpr Rounding kAll[] = {Rounding::kDefinition, Rounding::kGateUp,
                                        Rounding::kGateUpActivated};
    const bool all = options_.accepts_engine_roundings && options_.kind == DataKind::kRealistic;
    return std::span(kAll).first(all ? std::size(kAll) : 1);
  }

  // The tuner comes back to a bucket several times.
  Expected& expect(const Case& c, Scale scale, int sample) {
    const auto known = std::find_if(expected_.begin(), expected_.end(),
                                    [&](const Expected& e) { return e.is_of(c, scale, sample); });
    if (known == expected_.end()) {
      expected_.push_back({c, scale, sample, {}});
      forget_the_oldest();
    } else {
      expected_.splice(expected_.end(), expected_, known);
    }
    return expected_.back();
  }

  void forget_the_oldest() {
    size_t bytes = 0;
    for (auto expected = expected_.rbegin(); expected != expected_.rend(); ++expected) {
      for (Right& right : expected->right) {
        if (!right.agreed) continue;
        bytes += right.agreed->values.size() * sizeof(float);
        if (bytes > kAgreedBytes) right.agreed.reset();
      }
    }
  }

  // Makes the references of a call that has none yet.
  Status refer(Expected& expected) {
    if (!expected.right.empty()) return {};
    // Sample 0 is the one that is judged nearly always.
    const bool is_there = expected.sample == 0 && first_inputs_.what == expected.what &&
                          first_inputs_.scale == expected.scale;
    MoeInputs own;
    if (!is_there) {
      MOETUNE_ASSIGN_OR_RETURN(own, inputs(expected.what, expected.scale, expected.sample));
    }
    MoeInputs& made = is_there ? first_inputs_.inputs : own;
    const std::vector<int64_t> checked =
        sample_rows(spec_, made, options_.reference_rows, expected.what.seed);
    const Tensors arguments = call_arguments(spec_, made, nullptr);
    MOETUNE_ASSIGN_OR_RETURN(auto references, reference_rows(spec_, *weights_, arguments, checked,
                                                             options_.threads, roundings()));
    for (ReferenceRows& reference : references)
      expected.right.push_back({std::move(reference), std::nullopt});
    const std::vector<int64_t> spread = sample_rows(spec_, made, kRowsOfALook, expected.what.seed);
    std::set_union(spread.begin(), spread.end(), checked.begin(), checked.end(),
                   std::back_inserter(expected.look));
    return {};
  }

  Verdict judge_rows(const Expected& expected, Right& right, std::span<const int64_t> rows,
                     const Tensor& output) const {
    std::vector<int64_t> positions;  // Of the reference's tokens among `rows`.
    for (const int64_t token : right.reference.tokens) {
      const auto at = std::find(rows.begin(), rows.end(), token);
      if (at == rows.end()) return {false, fmt::format("row {} is missing", token)};
      positions.push_back(at - rows.begin());
    }
    std::vector<std::byte> gathered = gather_rows(output, positions);
    const Tensor checked = {"output",
                            output.type,
                            {static_cast<int64_t>(positions.size()), spec_.hidden},
                            gathered.data()};
    if (Verdict verdict = compare(right.reference, checked, usual_limits(output)); !verdict.ok)
      return verdict;
    // Where not all rows are known under this rounding, what is known of them was rounded
    // elsewhere.
    const bool all_known = right.agreed && right.agreed->tokens.size() >= rows.size();
    for (const Right& other : expected.right) {
      if (!other.agreed || (all_known && &other != &right)) continue;
      Verdict verdict =
          agree(*other.agreed, rows, output,
                &other == &right ? usual_limits(output) : other_rounding_limits(output));
      if (!verdict.ok) return verdict;
    }
    if (!right.agreed || right.agreed->tokens.size() < rows.size())
      right.agreed = ReferenceRows{{rows.begin(), rows.end()}, spec_.hidden, values_of(output)};
    return {};
  }

  // Of the rows that both have, which are in ascending order in both.
  Verdict agree(const ReferenceRows& agreed, std::span<const int64_t> rows, const Tensor& output,
                const CloseLimits& limits) const {
    Verdict verdict;
    if (std::equal(rows.begin(), rows.end(), agreed.tokens.begin(), agreed.tokens.end())) {
      verdict = compare(agreed, output, limits);
    } else {
      ReferenceRows common{{}, agreed.hidden, {}};
      std::vector<int64_t> positions;
      for (size_t i = 0; i < agreed.tokens.size(); ++i) {
        const auto at = std::lower_bound(rows.begin(), rows.end(), agreed.tokens[i]);
        if (at == rows.end() || *at != agreed.tokens[i]) continue;
        positions.push_back(at - rows.begin());
        common.tokens.push_back(*at);
        const auto first = agreed.values.begin() + static_cast<ptrdiff_t>(i) * agreed.hidden;
        common.values.insert(common.values.end(), first, first + agreed.hidden);
      }
      if (positions.empty()) return {};
      std::vector<std::byte> gathered = gather_rows(output, positions);
      const Tensor same = {"output",
                           output.type,
                           {static_cast<int64_t>(positions.size()), spec_.hidden},
                           gathered.data()};
      verdict = compare(common, same, limits);
    }
    if (!verdict.ok)
      verdict.reason += " (against an output that was right where the reference was asked)";
    return verdict;
  }

  bool has_fp8_products() const {
    return options_.accepts_engine_roundings && spec_.activations != ActivationFormat::kA16;
  }
  CloseLimits usual_limits(const Tensor& output) const {
    return has_fp8_products() ? fp8_product_limits(output.type) : close_limits(output.type);
  }
  CloseLimits other_rounding_limits(const Tensor& output) const {
    return has_fp8_products() ? fp8_product_limits(output.type)
                              : moetune::other_rounding_limits(output.type);
  }

  Verdict compare(const ReferenceRows& right, const Tensor& rows, const CloseLimits& limits) const {
    return options_.kind == DataKind::kExact
               ? compare_exact(right, rows).verdict
               : compare_close(right, rows, limits, options_.threads).verdict;
  }

  FusedMoeSpec spec_;
  MoeWorkbenchOptions options_;
  Problem problem_;
  std::unique_ptr<WeightSource> weights_;
  FirstChunks subset_;
  std::map<std::string, Workload> workloads_;
  std::map<std::tuple<int64_t, std::string, uint64_t, Scale, int>, Work> work_;
  MoeInputs inputs_;
  struct {
    Case what;
    Scale scale = Scale::kFull;
    MoeInputs inputs;
  } first_inputs_;                // Of sample 0 of the case that arguments() was last asked for.
  std::list<Expected> expected_;  // The one that was judged last comes last.
};

}  // namespace

int64_t subset_experts(const FusedMoeSpec& spec, size_t last_level_cache_bytes) {
  // The router cannot keep to a few experts where it has to spread over groups or over ranks; and
  // shared ones, which come last, cannot be left out.
  if (spec.router.groups > 1 || spec.ep > 1 || spec.shared_experts > 0) return spec.held_experts();
  const int64_t bytes = 3 * static_cast<int64_t>(last_level_cache_bytes);
  const int64_t enough = bytes / expert_weight_bytes(spec) + 1;
  const int64_t few = std::max<int64_t>({enough, 2 * spec.top_k, 8});
  return 2 * few <= spec.experts ? few : spec.held_experts();
}

int64_t subset_tokens(const FusedMoeSpec& spec, size_t last_level_cache_bytes, int64_t tokens) {
  const int64_t few = subset_experts(spec, last_level_cache_bytes);
  if (few >= spec.experts) return tokens;
  return std::max<int64_t>(1, (tokens * few + spec.experts / 2) / spec.experts);
}

Work moe_work(const FusedMoeSpec& spec, std::span<const int64_t> rows_per_expert, int64_t tokens) {
  Work work;
  const int64_t rows = std::accumulate(rows_per_expert.begin(), rows_per_expert.end(), int64_t{0});
  work.touched_chunks = touched_experts(rows_per_expert);
  const double output_bytes = bits_per_value(spec.output) / 8.0;
  work.bytes = static_cast<double>(work.touched_chunks * expert_weight_bytes(spec)) +
               static_cast<double>(tokens * spec.hidden) * (2 + output_bytes);
  work.operations =
      2.0 * static_cast<double>(rows) *
      static_cast<double>(spec.w13_rows() * spec.hidden + spec.hidden * spec.intermediate);
  return work;
}

Result<std::unique_ptr<Workbench>> make_moe_workbench(const FusedMoeSpec& spec,
                                                      const MoeWorkbenchOptions& options,
                                                      std::unique_ptr<WeightSource> weights) {
  FusedMoeSpec judged = options.kind == DataKind::kExact ? exact_variant(spec) : spec;
  // A problem whose routing is given has no router (moe_problem() leaves it out), and everybody who
  // knows the problem must make the same inputs of it.
  if (judged.given_routing) judged.router = RouterSpec{};
  if (weights == nullptr || options.kind == DataKind::kExact) {
    MOETUNE_ASSIGN_OR_RETURN(
        weights, make_random_weights(judged, options.kind, options.seed, options.threads));
  } else if (weights->chunks() != spec.held_experts()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("weights of {} experts for a layer of {}",
                                                          weights->chunks(), spec.held_experts())};
  }
  return std::unique_ptr<Workbench>(
      std::make_unique<MoeWorkbench>(judged, options, std::move(weights)));
}

}  // namespace moetune

#include "ops/moe/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "ops/moe/router.h"
#include "ops/moe/streams.h"
#include "ops/moe/top_k.h"

namespace moetune {

namespace {

constexpr double kMaxZipfExponent = 16;
constexpr int64_t kFewTokens = 64;  // Take less time than starting threads.

constexpr size_t kMaxTraceBytes = size_t{1} << 20;  // Counts of the most experts take a tenth.

Error bad_trace(const std::string& file, const std::string& what) {
  return {
      ErrorCode::kParse, fmt::format("workload trace:{}: {}", file, what),
      R"(a trace is a JSON file with how often each expert was used: {"counts": [310, 12, ...]})"};
}

Result<std::vector<double>> read_trace(const std::string& file) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxTraceBytes));
  MOETUNE_ASSIGN_OR_RETURN(const Json json, parse_json(text, file));
  if (!json.contains("counts") || !json["counts"].is_array()) {
    return bad_trace(file, "has no array \"counts\"");
  }
  std::vector<double> counts;
  double sum = 0;
  for (const Json& entry : json["counts"]) {
    const double count = entry.is_number() ? entry.get<double>() : -1;
    if (!(count >= 0) || !std::isfinite(sum += count)) {
      return bad_trace(file, fmt::format("counts[{}] is {}, not a count", counts.size(),
                                         print_json_line(entry)));
    }
    counts.push_back(count);
  }
  if (sum == 0) return bad_trace(file, "has no count above 0");
  return counts;
}

Result<double> read_exponent(std::string_view text) {
  double exponent = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  const bool whole = code == std::errc() && end == text.data() + text.size();
  if (whole && exponent >= 0 && exponent <= kMaxZipfExponent) return exponent;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("workload zipf:{}: the exponent must be a number from 0 to {}", text,
                           kMaxZipfExponent),
               "zipf:1.2 is a common choice"};
}

std::vector<double> zipf_popularity(int64_t experts, double exponent, uint64_t seed) {
  std::vector<double> popularity(static_cast<size_t>(experts));
  for (size_t rank = 0; rank < popularity.size(); ++rank) {
    popularity[rank] = std::pow(static_cast<double>(rank + 1), -exponent);
  }
  Random random = random_stream(seed, RandomUse::kPopularity);
  for (size_t i = popularity.size(); i > 1; --i) {
    std::swap(popularity[i - 1], popularity[random.below(static_cast<uint32_t>(i))]);
  }
  return popularity;
}

Result<std::vector<double>> trace_popularity(const FusedMoeSpec& spec, const Workload& workload) {
  std::vector<double> popularity = workload.counts;
  if (static_cast<int64_t>(popularity.size()) != spec.global_experts) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("workload {}: has {} counts, but the layer has {} experts",
                             workload.text, popularity.size(), spec.global_experts),
                 "record the trace on the same model, all its experts included"};
  }
  const auto used =
      std::count_if(popularity.begin(), popularity.end(), [](double count) { return count > 0; });
  if (used < spec.top_k) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format(
            "workload {}: only {} experts were ever used, but each token needs {} different ones",
            workload.text, used, spec.top_k),
        "record the trace over more tokens"};
  }
  // An expert that was never used is taken only where a token's groups have nothing else left.
  double sum = 0;
  for (double count : popularity) sum += count;
  for (double& count : popularity) count = std::max(count, 1e-12 * sum);
  return popularity;
}

// Chooses the experts of one token after another.
class Chooser {
 public:
  // Without popularities: round-robin.
  Chooser(const FusedMoeSpec& spec, std::vector<double> popularity, Random& random)
      : spec_(spec),
        random_(random),
        popularity_(std::move(popularity)),
        keys_(static_cast<size_t>(spec.global_experts)),
        best_(static_cast<size_t>(std::max(spec.top_k, spec.router.top_groups))),
        uses_(keys_.size()),
        is_uniform_(spec.router.groups == 1 && !popularity_.empty() &&
                    std::all_of(popularity_.begin(), popularity_.end(),
                                [this](double p) { return p == popularity_[0]; })) {
    if (!popularity_.empty()) return;
    // Another sample starts elsewhere, at a group's first expert.
    const auto unit = static_cast<uint32_t>(spec.global_experts / spec.router.groups);
    const uint32_t places =
        spec.router.groups > 1 ? static_cast<uint32_t>(spec.router.groups) : unit;
    rotation_ = random.below(places) * (spec.router.groups > 1 ? unit : 1);
  }

  void choose(std::span<int32_t> ids) {
    if (is_uniform_) return choose_uniformly(ids);
    set_keys(keys_, popularity_, uses_);
    if (spec_.router.groups > 1) mask_groups();
    select_top_k<double>(keys_, ids, std::span(best_).first(ids.size()));
    for (int32_t& id : ids) {
      ++uses_[static_cast<size_t>(id)];
      id = static_cast<int32_t>((static_cast<uint32_t>(id) + rotation_) % keys_.size());
    }
  }

 private:
  // Distinct experts, all equally likely (Floyd's sampling), in random order: no logarithm for each
  // expert of each token.
  void choose_uniformly(std::span<int32_t> ids) {
    const auto experts = static_cast<uint32_t>(keys_.size());
    const auto count = static_cast<uint32_t>(ids.size());
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t last = experts - count + i;
      auto drawn = static_cast<int32_t>(random_.below(last + 1));
      const auto before = ids.first(i);
      if (std::find(before.begin(), before.end(), drawn) != before.end())
        drawn = static_cast<int32_t>(last);
      ids[i] = drawn;
      std::swap(ids[i], ids[random_.below(i + 1)]);
    }
  }

  // Popularity over an exponential variable has the order of log popularity + Gumbel variable, with
  // one logarithm less.
  void set_keys(std::span<double> keys, std::span<const double> popularity,
                std::span<const int64_t> uses) {
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = popularity.empty() ? -static_cast<double>(uses[i])
                                   : popularity[i] / -std::log(random_.uniform());
    }
  }

  // Leaves top_groups groups, drawn by the sums over their experts.
  void mask_groups() {
    const auto groups = static_cast<size_t>(spec_.router.groups);
    const size_t size = keys_.size() / groups;
    std::vector<double> popularity(popularity_.empty() ? 0 : groups);
    std::vector<int64_t> uses(groups);
    for (size_t i = 0; i < keys_.size(); ++i) {
      uses[i / size] += uses_[i];
      if (!popularity.empty()) popularity[i / size] += popularity_[i];
    }
    std::vector<double> group_keys(groups);
    set_keys(group_keys, popularity, uses);
    std::vector<int32_t> kept(static_cast<size_t>(spec_.router.top_groups));
    select_top_k<double>(group_keys, kept, std::span(best_).first(kept.size()));
    for (size_t i = 0; i < keys_.size(); ++i) {
      const bool stays =
          std::find(kept.begin(), kept.end(), static_cast<int32_t>(i / size)) != kept.end();
      if (!stays) keys_[i] = -std::numeric_limits<double>::infinity();
    }
  }

  const FusedMoeSpec& spec_;
  Random& random_;
  std::vector<double> popularity_;
  std::vector<double> keys_;
  std::vector<double> best_;
  std::vector<int64_t> uses_;
  bool is_uniform_;
  uint32_t rotation_ = 0;
};

// Logits of chosen experts start at 1.5, those of the others end at -2: with the biases below,
// every chosen expert leads, and in group scores too (a chosen one and the worst other outweigh two
// of the best others), whatever the score.
constexpr float kChosenLogit = 1.5f;
constexpr float kChosenSpread = 0.6f;
constexpr float kOtherLogit = -3.0f;

float bias_limit(const FusedMoeSpec& spec) {
  const bool bias_meets_softmax =
      spec.router.score == Score::kSoftmax && !spec.router.score_after_top_k;
  return bias_meets_softmax ? 0.125f / static_cast<float>(spec.global_experts) : 0.05f;
}

std::vector<float> make_router_bias(const FusedMoeSpec& spec, uint64_t seed) {
  if (!spec.router.selection_bias) return {};
  std::vector<float> bias(static_cast<size_t>(spec.global_experts));
  Random random = random_stream(seed, RandomUse::kRouterBias);
  const float limit = bias_limit(spec);
  for (float& value : bias) value = limit * (2 * static_cast<float>(random.uniform()) - 1);
  return bias;
}

void make_logits(Random& random, std::span<const int32_t> chosen, std::span<float> logits) {
  for (size_t i = 0; i < logits.size();) {
    for (uint64_t bits = random.next(), left = 4; left > 0 && i < logits.size();
         --left, bits >>= 16) {
      logits[i++] = kOtherLogit + static_cast<float>(bits & 0xFFFFu) * 0x1p-16f;
    }
  }
  for (int32_t id : chosen) {
    logits[static_cast<size_t>(id)] = kChosenLogit + kChosenSpread * std::abs(random.normal());
  }
}

Result<std::vector<double>> popularity_of(const FusedMoeSpec& spec, const Workload& workload,
                                          uint64_t seed) {
  switch (workload.kind) {
    case Workload::Kind::kUniform:
      return std::vector<double>(static_cast<size_t>(spec.global_experts), 1.0);
    case Workload::Kind::kBalanced: break;
    case Workload::Kind::kZipf:
      return zipf_popularity(spec.global_experts, workload.exponent, seed);
    case Workload::Kind::kTrace: return trace_popularity(spec, workload);
  }
  return std::vector<double>();
}

}  // namespace

Result<Workload> parse_workload(std::string_view text) {
  constexpr std::string_view kZipf = "zipf:";
  constexpr std::string_view kTrace = "trace:";
  Workload workload{.text = std::string(text)};
  if (text == "uniform") return workload;
  if (text == "balanced") {
    workload.kind = Workload::Kind::kBalanced;
    return workload;
  }
  if (text.starts_with(kZipf)) {
    workload.kind = Workload::Kind::kZipf;
    MOETUNE_ASSIGN_OR_RETURN(workload.exponent, read_exponent(text.substr(kZipf.size())));
    return workload;
  }
  if (text.starts_with(kTrace)) {
    workload.kind = Workload::Kind::kTrace;
    MOETUNE_ASSIGN_OR_RETURN(workload.counts, read_trace(std::string(text.substr(kTrace.size()))));
    return workload;
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("unknown workload '{}'", text),
               "use uniform, balanced, zipf:1.2 or trace:FILE"};
}

Result<Routing> make_routing(const FusedMoeSpec& spec, const Workload& workload, int64_t tokens,
                             uint64_t seed, uint64_t sample, int threads) {
  MOETUNE_ASSIGN_OR_RETURN(std::vector<double> popularity, popularity_of(spec, workload, seed));
  Routing routing{.tokens = tokens, .router_bias = make_router_bias(spec, seed)};
  const auto experts = static_cast<size_t>(spec.global_experts);
  const auto k = static_cast<size_t>(spec.top_k);
  const auto count = static_cast<size_t>(tokens);
  routing.logits.resize(count * experts);
  routing.ids.resize(count * k);
  routing.weights.resize(count * k);
  Random random = random_stream(seed, RandomUse::kRouting, sample);
  Chooser chooser(spec, std::move(popularity), random);
  // Who is chosen may depend on who was before; the rest is each token's own, from a stream of its
  // own.
  std::vector<int32_t> intended(count * k);
  for (size_t token = 0; token < count; ++token)
    chooser.choose(std::span(intended).subspan(token * k, k));
  const uint64_t logits_seed = random.next();
  std::atomic<int64_t> strange{-1};
  in_parts(tokens < kFewTokens ? 1 : threads, tokens, [&](int64_t first, int64_t last) {
    for (auto token = static_cast<size_t>(first); token < static_cast<size_t>(last); ++token) {
      const auto logits = std::span(routing.logits).subspan(token * experts, experts);
      const auto ids = std::span(routing.ids).subspan(token * k, k);
      const auto chosen = std::span<const int32_t>(intended).subspan(token * k, k);
      Random own(logits_seed, token);
      make_logits(own, chosen, logits);
      route(spec, logits.data(), routing.router_bias.data(), ids.data(),
            &routing.weights[token * k]);
      if (!std::is_permutation(ids.begin(), ids.end(), chosen.begin()))
        strange = static_cast<int64_t>(token);
    }
  });
  if (strange >= 0) {
    return Error{
        ErrorCode::kInternal,
        fmt::format("workload {}: the router did not choose the intended experts of token {}",
                    workload.text, strange.load()),
        "please report this with the model's router settings"};
  }
  return routing;
}

std::vector<int64_t> rows_per_expert(std::span<const int32_t> ids, int64_t first_expert,
                                     int64_t experts) {
  std::vector<int64_t> rows(static_cast<size_t>(experts));
  for (int32_t id : ids) {
    const int64_t local = id - first_expert;
    if (local >= 0 && local < experts) ++rows[static_cast<size_t>(local)];
  }
  return rows;
}

int64_t touched_experts(std::span<const int64_t> rows_per_expert) {
  return std::count_if(rows_per_expert.begin(), rows_per_expert.end(),
                       [](int64_t rows) { return rows > 0; });
}

}  // namespace moetune

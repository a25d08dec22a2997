#include <algorithm>
#include <array>
#include <numeric>

#include "ops/moe/streams.h"
#include "ops/moe/verify.h"

namespace moetune {

namespace {

// Rows per tile of the micro-kernels and tensor-core instructions around: where a remainder begins
// or a loop ends.
constexpr std::array<int64_t, 6> kTileRows = {4, 6, 8, 16, 32, 64};

// Positions beside the first and the last edge between tiles, for `rows` rows.
std::vector<int64_t> beside_edges(int64_t rows) {
  std::vector<int64_t> positions;
  for (int64_t tile : kTileRows) {
    for (int64_t edge : {tile, rows / tile * tile}) {
      positions.push_back(edge - 1);
      positions.push_back(edge);
    }
  }
  std::erase_if(positions, [rows](int64_t position) { return position < 0 || position >= rows; });
  return positions;
}

class Sampler {
 public:
  Sampler(const FusedMoeSpec& spec, const MoeInputs& inputs, int64_t limit)
      : spec_(spec),
        inputs_(inputs),
        limit_(static_cast<size_t>(limit)),
        taken_(static_cast<size_t>(inputs.routing.tokens)),
        covered_(static_cast<size_t>(spec.experts)) {}

  bool full() const { return tokens_.size() >= std::min(limit_, taken_.size()); }

  void take(int64_t token) {
    if (full() || taken_[static_cast<size_t>(token)]) return;
    taken_[static_cast<size_t>(token)] = true;
    tokens_.push_back(token);
    for_experts(token, [&](size_t expert) { covered_[expert] = true; });
  }

  // The tokens of the expert with the most rows, in the order in which its rows are computed.
  std::vector<int64_t> tokens_of_busiest() const {
    const std::vector<int64_t> rows =
        rows_per_expert(inputs_.routing.ids, inputs_.first_expert, spec_.experts);
    const auto busiest =
        static_cast<size_t>(std::max_element(rows.begin(), rows.end()) - rows.begin());
    std::vector<int64_t> tokens;
    for (int64_t token = 0; token < inputs_.routing.tokens; ++token) {
      for_experts(token, [&](size_t expert) {
        if (expert == busiest) tokens.push_back(token);
      });
    }
    return tokens;
  }

  // Takes whoever touches the most experts not seen yet, until there are none or the sample is
  // full.
  void cover_experts() {
    while (!full()) {
      int64_t best_token = -1;
      int best_gain = 0;
      for (int64_t token = 0; token < inputs_.routing.tokens; ++token) {
        int gain = 0;
        for_experts(token, [&](size_t expert) { gain += covered_[expert] ? 0 : 1; });
        if (gain > best_gain) {
          best_gain = gain;
          best_token = token;
        }
      }
      if (best_token < 0) return;
      take(best_token);
    }
  }

  std::vector<int64_t> sorted() && {
    std::sort(tokens_.begin(), tokens_.end());
    return std::move(tokens_);
  }

 private:
  template <typename Body>
  void for_experts(int64_t token, Body body) const {
    for (int64_t slot = token * spec_.top_k; slot < (token + 1) * spec_.top_k; ++slot) {
      const int64_t local = inputs_.routing.ids[static_cast<size_t>(slot)] - inputs_.first_expert;
      if (local >= 0 && local < spec_.experts) body(static_cast<size_t>(local));
    }
  }

  const FusedMoeSpec& spec_;
  const MoeInputs& inputs_;
  const size_t limit_;
  std::vector<bool> taken_;
  std::vector<bool> covered_;
  std::vector<int64_t> tokens_;
};

}  // namespace

std::vector<int64_t> sample_rows(const FusedMoeSpec& spec, const MoeInputs& inputs, int64_t limit,
                                 uint64_t seed) {
  const int64_t tokens = inputs.routing.tokens;
  if (tokens == 0) return {};
  Sampler sampler(spec, inputs, limit);
  sampler.take(0);
  sampler.take(tokens - 1);

  // Half of the rest is for edges, in an order of chance, so that over many samples all of them are
  // seen.
  std::vector<int64_t> edges = beside_edges(tokens);
  const std::vector<int64_t> busiest = sampler.tokens_of_busiest();
  for (int64_t position : beside_edges(static_cast<int64_t>(busiest.size()))) {
    edges.push_back(busiest[static_cast<size_t>(position)]);
  }
  Random random = random_stream(seed, RandomUse::kCheckedRows, static_cast<uint64_t>(tokens));
  for (size_t i = edges.size(); i > 1; --i)
    std::swap(edges[i - 1], edges[random.below(static_cast<uint32_t>(i))]);
  edges.resize(std::min(edges.size(), static_cast<size_t>(std::max<int64_t>(limit - 2, 0) / 2)));
  for (int64_t token : edges) sampler.take(token);

  sampler.cover_experts();
  while (!sampler.full()) sampler.take(random.below(static_cast<uint32_t>(tokens)));
  return std::move(sampler).sorted();
}

}  // namespace moetune

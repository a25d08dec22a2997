#include "ops/moe/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "ops/moe/top_k.h"

namespace moetune {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Written so that neither a large nor a small x loses its digits.
float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

float score_one(Score score, float logit) {
  return score == Score::kSigmoid ? sigmoid(logit) : std::sqrt(softplus(logit));
}

// The denominator of a softmax over `logits`, all of them relative to `largest`.
float exponential_sum(std::span<const float> logits, float largest) {
  float sum = 0;
  for (float logit : logits) sum += std::exp(logit - largest);
  return sum;
}

void score_all(Score score, std::span<const float> logits, std::span<float> scores) {
  if (score != Score::kSoftmax) {
    std::transform(logits.begin(), logits.end(), scores.begin(),
                   [score](float x) { return score_one(score, x); });
    return;
  }
  const float largest = *std::max_element(logits.begin(), logits.end());
  const float factor = 1.0f / exponential_sum(logits, largest);
  std::transform(logits.begin(), logits.end(), scores.begin(),
                 [=](float x) { return std::exp(x - largest) * factor; });
}

float sum_of_two_best(std::span<const float> keys) {
  float first = kMinusInfinity;
  float second = kMinusInfinity;
  for (float key : keys) {
    if (key > first) {
      second = first;
      first = key;
    } else if (key > second) {
      second = key;
    }
  }
  return keys.size() == 1 ? first : first + second;
}

void mask_weak_groups(const RouterSpec& router, std::span<float> keys) {
  const auto groups = static_cast<size_t>(router.groups);
  const auto kept = static_cast<size_t>(router.top_groups);
  const size_t size = keys.size() / groups;
  std::array<float, kMaxMoeGroups> group_scores;
  std::array<float, kMaxMoeGroups> best;
  std::array<int32_t, kMaxMoeGroups> best_groups;
  for (size_t group = 0; group < groups; ++group)
    group_scores[group] = sum_of_two_best(keys.subspan(group * size, size));
  select_top_k<float>(std::span(group_scores).first(groups), std::span(best_groups).first(kept),
                      std::span(best).first(kept));
  std::array<bool, kMaxMoeGroups> stays{};
  for (size_t i = 0; i < kept; ++i) stays[static_cast<size_t>(best_groups[i])] = true;
  for (size_t group = 0; group < groups; ++group) {
    if (!stays[group])
      std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>(group * size), size, kMinusInfinity);
  }
}

void choose(const FusedMoeSpec& spec, std::span<const float> logits, const float* bias,
            std::span<int32_t> ids) {
  const RouterSpec& router = spec.router;
  std::array<float, kMaxMoeTopK> best;
  const auto best_keys = std::span(best).first(ids.size());
  if (!router.selection_bias && router.groups == 1)
    return select_top_k<float>(logits, ids, best_keys);
  std::array<float, kMaxMoeExperts> storage;
  const auto keys = std::span(storage).first(logits.size());
  if (router.score_after_top_k) {
    std::copy(logits.begin(), logits.end(), keys.begin());
  } else {
    score_all(router.score, logits, keys);
  }
  if (router.selection_bias) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] += bias[i];
  }
  if (router.groups > 1) mask_weak_groups(router, keys);
  select_top_k<float>(keys, ids, best_keys);
}

// The weights of a softmax router. Renormalising cancels the sum over all experts, and leaves the
// one over the chosen.
void weigh_softmax(const RouterSpec& router, std::span<const float> logits,
                   std::span<const int32_t> ids, std::span<float> weights) {
  std::transform(ids.begin(), ids.end(), weights.begin(),
                 [&](int32_t id) { return logits[static_cast<size_t>(id)]; });
  const bool over_chosen = router.renormalise || router.score_after_top_k;
  const std::span<const float> over = over_chosen ? std::span<const float>(weights) : logits;
  const float largest = *std::max_element(over.begin(), over.end());
  const float factor = router.scale / exponential_sum(over, largest);
  for (float& weight : weights) weight = std::exp(weight - largest) * factor;
}

void weigh_sigmoid_family(const RouterSpec& router, std::span<const float> logits,
                          std::span<const int32_t> ids, std::span<float> weights) {
  float sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    weights[i] = score_one(router.score, logits[static_cast<size_t>(ids[i])]);
    sum += weights[i];
  }
  const float factor =
      router.renormalise ? router.scale / (sum + kRenormaliseEpsilon) : router.scale;
  for (float& weight : weights) weight *= factor;
}

}  // namespace

void route(const FusedMoeSpec& spec, const float* logits, const float* bias, int32_t* ids,
           float* weights) {
  const std::span all_logits(logits, static_cast<size_t>(spec.global_experts));
  const std::span chosen(ids, static_cast<size_t>(spec.top_k));
  const std::span chosen_weights(weights, static_cast<size_t>(spec.top_k));
  choose(spec, all_logits, bias, chosen);
  const auto weigh = spec.router.score == Score::kSoftmax ? weigh_softmax : weigh_sigmoid_family;
  weigh(spec.router, all_logits, chosen, chosen_weights);
}

}  // namespace moetune

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "ops/moe/reference.h"

namespace moetune {

namespace {

std::vector<double> scores_of(Score score, std::vector<double> values) {
  double sum = 0;
  const double largest = *std::max_element(values.begin(), values.end());
  for (double& x : values) {
    switch (score) {
      case Score::kSoftmax: x = std::exp(x - largest); break;
      case Score::kSigmoid: x = 1 / (1 + std::exp(-x)); break;
      case Score::kSqrtSoftplus: x = std::sqrt(x > 30 ? x : std::log1p(std::exp(x))); break;
    }
    sum += x;
  }
  if (score == Score::kSoftmax) {
    for (double& x : values) x /= sum;
  }
  return values;
}

// Indices of the largest values, best first, equal ones by index.
std::vector<size_t> best_of(const std::vector<double>& values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

void drop_groups(const RouterSpec& router, std::vector<double>& biased) {
  const size_t size = biased.size() / static_cast<size_t>(router.groups);
  std::vector<double> group_scores;
  for (size_t first = 0; first < biased.size(); first += size) {
    std::vector<double> group(&biased[first], &biased[first] + size);
    std::sort(group.begin(), group.end(), std::greater<>());
    group_scores.push_back(size == 1 ? group[0] : group[0] + group[1]);
  }
  const std::vector<size_t> kept = best_of(group_scores, static_cast<size_t>(router.top_groups));
  for (size_t i = 0; i < biased.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), i / size) == kept.end()) {
      biased[i] = -std::numeric_limits<double>::infinity();
    }
  }
}

}  // namespace

std::vector<ReferenceSlot> reference_route(const FusedMoeSpec& spec, std::span<const float> logits,
                                           std::span<const float> bias) {
  const RouterSpec& router = spec.router;
  const std::vector<double> exact(logits.begin(), logits.end());
  const std::vector<double> scores =
      router.score_after_top_k ? exact : scores_of(router.score, exact);
  std::vector<double> biased = scores;
  if (router.selection_bias) {
    for (size_t i = 0; i < biased.size(); ++i) biased[i] += bias[i];
  }
  if (router.groups > 1) drop_groups(router, biased);

  const std::vector<size_t> chosen = best_of(biased, static_cast<size_t>(spec.top_k));
  std::vector<double> weights;
  for (size_t expert : chosen) weights.push_back(scores[expert]);
  if (router.score_after_top_k) weights = scores_of(router.score, weights);
  if (router.renormalise) {
    const double epsilon = router.score == Score::kSoftmax ? 0 : 1e-20;
    const double sum = std::accumulate(weights.begin(), weights.end(), epsilon);
    for (double& weight : weights) weight /= sum;
  }
  std::vector<ReferenceSlot> slots;
  for (size_t i = 0; i < chosen.size(); ++i) {
    slots.push_back(
        {static_cast<int64_t>(chosen[i]), weights[i] * static_cast<double>(router.scale)});
  }
  return slots;
}

}  // namespace moetune

#include "tuner/effects.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace moetune {
namespace {

// Of the penalty on effects, beside tries of weight 1; what all have in common has next to none.
constexpr double kRidge = 0.05;
constexpr double kRidgeOfCommon = 0.001;
// A try counts 1/e of the fastest's where it takes e to this power as long.
constexpr double kCareless = 0.3;

// Solves a x = b for a symmetric positive definite a [n, n]; a and b are used up, b becomes x.
void solve(std::vector<double>& a, std::vector<double>& b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / a[j * n + j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k * n + i] * b[k];
    b[i] /= a[i * n + i];
  }
}

}  // namespace

Effects::Effects(std::span<const Candidate* const> points) {
  std::map<std::pair<size_t, ParameterValue>, uint32_t> known;
  for (const Candidate* point : points) {
    size_t position = 0;
    for (const auto& stage : point->stages) {
      for (const auto& [name, value] : stage.tactic.parameters()) {
        const auto next = static_cast<uint32_t>(known.size());
        value_of_.push_back(known.try_emplace({position++, value}, next).first->second);
      }
    }
    parameters_ = position;
  }
  values_ = known.size();
}

void Effects::fit(std::span<const Try> tries) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Try& t : tries) fastest = std::min(fastest, t.us);
  const size_t n = values_ + 1;
  std::vector<double> normal(n * n);
  effects_.assign(n, 0);
  std::vector<size_t> present(parameters_ + 1, values_);
  for (const Try& t : tries) {
    const double slow = std::log(t.us / fastest);
    const double weight = t.weight * std::exp(-slow / kCareless);
    for (size_t i = 0; i < parameters_; ++i) present[i] = value_of_[t.point * parameters_ + i];
    for (const size_t i : present) {
      for (const size_t j : present) normal[i * n + j] += weight;
      effects_[i] += weight * std::log(t.us);
    }
  }
  for (size_t i = 0; i < n; ++i) normal[i * n + i] += i == values_ ? kRidgeOfCommon : kRidge;
  solve(normal, effects_);
}

double Effects::us(size_t point) const { return std::exp(log_us(point)); }

double Effects::log_us(size_t point) const {
  double sum = effects_[values_];
  for (size_t i = 0; i < parameters_; ++i) sum += effects_[value_of_[point * parameters_ + i]];
  return sum;
}

}  // namespace moetune

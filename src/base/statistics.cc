#include "base/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace moetune {
namespace {

// Above this the normal approximation is right to three digits in the tails that are used here.
constexpr int kExactCount = 60;

double quantile_of_sorted(const std::vector<double>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

// Of all 2^count sign patterns, the share whose positive ranks sum to at most `sum`.
double exact_signed_rank(int count, int sum) {
  std::vector<double> share(static_cast<size_t>(sum) + 1, 0.0);
  share[0] = 1;
  for (int rank = 1; rank <= count; ++rank) {
    for (int total = sum; total >= 0; --total) {
      const double with_rank = total >= rank ? share[static_cast<size_t>(total - rank)] : 0.0;
      share[static_cast<size_t>(total)] = 0.5 * (share[static_cast<size_t>(total)] + with_rank);
    }
  }
  double cumulative = 0;
  for (double value : share) cumulative += value;
  return cumulative;
}

// The largest sum whose probability is at most `tail`; -1 where even 0 is likelier.
int critical_sum(int count, double tail) {
  int low = -1;
  int high = count * (count + 1) / 4;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (signed_rank_probability(count, middle) <= tail) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Means of all pairs, each value with itself included. Not in order: there may be 80,000, of which
// three are wanted.
std::vector<double> walsh_averages(std::span<const double> values) {
  std::vector<double> averages;
  averages.reserve(values.size() * (values.size() + 1) / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i; j < values.size(); ++j) averages.push_back(0.5 * (values[i] + values[j]));
  }
  return averages;
}

double select(std::vector<double>& values, size_t position) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(position);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double median(std::span<const double> values) { return quartiles(values).median; }

Quartiles quartiles(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return {quantile_of_sorted(sorted, 0.25), quantile_of_sorted(sorted, 0.5),
          quantile_of_sorted(sorted, 0.75)};
}

double signed_rank_probability(int count, int sum) {
  if (sum < 0) return 0;
  const double n = count;
  if (sum >= n * (n + 1) / 2) return 1;
  if (count <= kExactCount) return exact_signed_rank(count, sum);
  const double mean = n * (n + 1) / 4;
  const double deviation = std::sqrt(n * (n + 1) * (2 * n + 1) / 24);
  return 0.5 * std::erfc((mean - sum - 0.5) / (deviation * std::numbers::sqrt2));
}

Estimate location(std::span<const double> values, double confidence) {
  assert(!values.empty() && confidence > 0 && confidence < 1);
  std::vector<double> averages = walsh_averages(values);
  const size_t last = averages.size() - 1;
  Estimate estimate;
  estimate.value = 0.5 * (select(averages, last / 2) + select(averages, last - last / 2));
  const int critical = critical_sum(static_cast<int>(values.size()), (1 - confidence) / 2);
  if (critical < 0) {
    estimate.low = -std::numeric_limits<double>::infinity();
    estimate.high = std::numeric_limits<double>::infinity();
  } else {
    estimate.low = select(averages, static_cast<size_t>(critical));
    estimate.high = select(averages, last - static_cast<size_t>(critical));
  }
  return estimate;
}

Estimate paired_ratio(std::span<const double> numerator, std::span<const double> denominator,
                      double confidence) {
  assert(numerator.size() == denominator.size());
  std::vector<double> logarithms(numerator.size());
  for (size_t i = 0; i < logarithms.size(); ++i) {
    assert(numerator[i] > 0 && denominator[i] > 0);
    logarithms[i] = std::log(numerator[i] / denominator[i]);
  }
  const Estimate estimate = location(logarithms, confidence);
  return {std::exp(estimate.value), std::exp(estimate.low), std::exp(estimate.high)};
}

double neighbour_noise(std::span<const double> values) {
  if (values.size() < 2) return 0;
  std::vector<double> steps;
  for (size_t i = 1; i < values.size(); ++i)
    steps.push_back(std::abs(std::log(values[i] / values[i - 1])));
  // A normal distribution has half of its values within 0.6745 deviations; a difference of two has
  // sqrt(2) of them.
  return median(steps) / (0.6744898 * std::numbers::sqrt2);
}

}  // namespace moetune

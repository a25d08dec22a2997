// Statistics for small, noisy, skewed samples of time: order statistics, and an interval for the
// ratio of two paired series that assumes no distribution.
//
// The interval is that of the Wilcoxon signed-rank test, read off the Walsh averages (Hodges and
// Lehmann, "Estimates of location based on rank tests", 1963; Hollander and Wolfe, "Nonparametric
// Statistical Methods", chapter 3). It needs the logarithms of the ratios to be symmetric about
// their middle. Paired times of two programs on one machine are: whatever skews one series skews
// the other, and the difference of two equally skewed values is symmetric. The sign test would need
// not even that, and pays for it with half as many samples again.
#pragma once

#include <span>

namespace moetune {

/// The middle value, or the mean of the middle two; 0 for none.
double median(std::span<const double> values);

struct Quartiles {
  double q1 = 0;
  double median = 0;
  double q3 = 0;
};

/// Linear between order statistics; all 0 for no values.
Quartiles quartiles(std::span<const double> values);

/// An estimate and an interval around it.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// The chance that a signed-rank sum of `count` values is <= `sum` when they are symmetric about 0.
/// Exact up to 60 values, then the normal approximation.
double signed_rank_probability(int count, int sum);

/// The Hodges-Lehmann middle of `values` and its interval at a two-sided `confidence` in (0, 1).
/// Where there are too few values for that confidence, the interval is infinite on both sides.
/// `values` must not be empty.
Estimate location(std::span<const double> values, double confidence);

/// The middle ratio numerator[i] / denominator[i] and its interval: (0, infinity) where there are
/// too few pairs. Both of one length, not empty, all > 0.
Estimate paired_ratio(std::span<const double> numerator, std::span<const double> denominator,
                      double confidence);

/// Relative spread (one standard deviation where the noise is normal) of values that may drift
/// slowly or hold outliers: from the ratios of neighbours in time. `values` are all > 0; 0 for
/// fewer than two.
double neighbour_noise(std::span<const double> values);

}  // namespace moetune

// When a user's old tuning file is called slower.
#include "cli/imported.h"

#include <gtest/gtest.h>

namespace moetune::cli {
namespace {

TimeSummary between(double q1_us, double median_us, double q3_us) {
  return {.median_us = median_us, .min_us = q1_us, .q1_us = q1_us, .q3_us = q3_us, .samples = 12};
}

TEST(Imported, IsSlowerWhereItsTimesLieAboveTheDefaults) {
  EXPECT_TRUE(is_shown_slower(between(104, 105, 106), between(99, 100, 101)));
  EXPECT_FALSE(is_shown_slower(between(99, 100, 101), between(104, 105, 106)));
}

TEST(Imported, IsNotSlowerByNoiseOrByNextToNothing) {
  EXPECT_FALSE(is_shown_slower(between(90, 105, 120), between(85, 100, 115)));
  EXPECT_FALSE(is_shown_slower(between(100.4, 100.5, 100.6), between(99, 100, 100.1)));
}

}  // namespace
}  // namespace moetune::cli

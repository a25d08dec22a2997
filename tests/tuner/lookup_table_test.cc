#include "tuner/lookup_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace moetune {
namespace {

// Answers are told apart by the address of their decision.
std::vector<LookupTable::Interval> intervals_ending_at(const std::vector<int64_t>& ends,
                                                       const std::vector<Decision>& decisions) {
  std::vector<LookupTable::Interval> intervals;
  for (size_t i = 0; i < ends.size(); ++i) {
    intervals.push_back({ends[i], {&decisions[i], Provenance::kTuned, ""}, i % 2 == 0});
  }
  return intervals;
}

void expect_like_the_definition(const std::vector<int64_t>& ends,
                                const std::vector<int64_t>& probes) {
  const std::vector<Decision> decisions(ends.size());
  const LookupTable table(intervals_ending_at(ends, decisions));
  EXPECT_EQ(table.maximum(), ends.back());
  for (int64_t tokens : probes) {
    if (tokens < 1 || tokens > ends.back()) {
      EXPECT_EQ(table.find(tokens).decision, nullptr) << tokens;
      EXPECT_EQ(table.find(tokens).provenance, Provenance::kDefault);
      continue;
    }
    const auto expected = static_cast<size_t>(
        std::find_if(ends.begin(), ends.end(), [&](int64_t to) { return to >= tokens; }) -
        ends.begin());
    ASSERT_EQ(table.index(tokens), expected) << tokens;
    EXPECT_EQ(table.find(tokens).decision, &decisions[expected]);
    EXPECT_EQ(table.settled(expected), expected % 2 == 0);
    EXPECT_LE(table.from(expected), tokens);
    EXPECT_GE(table.to(expected), tokens);
  }
}

TEST(LookupTable, FindsTheIntervalOfEverySize) {
  std::vector<int64_t> all;
  for (int64_t tokens = -2; tokens <= 300; ++tokens) all.push_back(tokens);
  expect_like_the_definition({1}, all);
  expect_like_the_definition({1, 3, 7, 15, 31, 63, 127, 255}, all);
  expect_like_the_definition({5, 6, 64, 65, 200}, all);
  std::vector<int64_t> every;
  for (int64_t tokens = 1; tokens <= 256; ++tokens) every.push_back(tokens);
  expect_like_the_definition(every, all);
}

TEST(LookupTable, FindsTheIntervalOfSizesAtTheEndsOfRandomIntervals) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::set<int64_t> ends;
    const size_t count = 1 + random() % 64;
    while (ends.size() < count)
      ends.insert(1 + static_cast<int64_t>(random() >> (1 + random() % 62)));
    std::vector<int64_t> probes = {0, 1, std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max()};
    for (int64_t to : ends) {
      for (int64_t offset : {-1, 0}) probes.push_back(to + offset);
      if (to < std::numeric_limits<int64_t>::max()) probes.push_back(to + 1);
    }
    expect_like_the_definition({ends.begin(), ends.end()}, probes);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace moetune

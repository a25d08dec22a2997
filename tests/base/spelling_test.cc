#include "base/spelling.h"

#include <gtest/gtest.h>

#include <vector>

namespace moetune {
namespace {

const std::vector<std::string> kFlags = {"--budget", "--tokens", "--device"};

TEST(Spelling, TheNearestWordIsFound) {
  EXPECT_EQ(nearest_word("--budgt", kFlags), "--budget");
  EXPECT_EQ(nearest_word("--Tokesn", kFlags), "--tokens");
  EXPECT_EQ(nearest_word("--device", kFlags), "--device");
}

TEST(Spelling, WhatIsNearNothingIsLeftAlone) {
  EXPECT_EQ(nearest_word("zzzz", kFlags), "");
  EXPECT_EQ(nearest_word("", kFlags), "");
  EXPECT_EQ(nearest_word("--budget", {}), "");
  EXPECT_EQ(did_you_mean("zzzz", kFlags), "");
  EXPECT_EQ(did_you_mean("--budge", kFlags), "did you mean --budget? ");
}

// Words are a user's and may be anything.
TEST(Spelling, LongWordsCostLittle) {
  EXPECT_EQ(nearest_word(std::string(1 << 20, 'x'), kFlags), "");
}

}  // namespace
}  // namespace moetune

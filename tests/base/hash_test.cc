#include "base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

namespace moetune {
namespace {

TEST(Hash, OrderAndBoundariesMatter) {
  EXPECT_NE(Hash64().add(1).add(2).value(), Hash64().add(2).add(1).value());
  EXPECT_NE(Hash64().add("ab").add("c").value(), Hash64().add("a").add("bc").value());
  EXPECT_NE(hash64(std::string_view("a\0", 2)), hash64("a"));
  EXPECT_NE(hash64(""), Hash64().value());
}

TEST(Hash, StaysTheSameBetweenReleasesBecauseFilesAreNamedWithIt) {
  EXPECT_EQ(hash64("moetune"), 11978863642963503095u);
}

TEST(Hash, SmallNumbersDoNotCollideAndSpreadOverAllBits) {
  constexpr uint64_t kSide = 300;
  std::set<uint64_t> seen;
  for (uint64_t a = 0; a < kSide; ++a) {
    for (uint64_t b = 0; b < kSide; ++b) seen.insert(Hash64().add(a).add(b).value());
  }
  EXPECT_EQ(seen.size(), kSide * kSide);

  int changed = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flipped = Hash64().add(uint64_t{1} << bit).value();
    changed += std::popcount(Hash64().add(0).value() ^ flipped);
  }
  EXPECT_NEAR(changed / 64.0, 32, 4) << "a changed bit should change half of the hash";
}

TEST(Hash, LowBitsAloneFillATable) {
  std::set<uint64_t> places;
  for (uint64_t i = 0; i < 4096; ++i) places.insert(Hash64().add(i).value() % 4096);
  // Throwing 4096 balls into 4096 bins at random fills 1 - 1/e of them.
  EXPECT_NEAR(static_cast<double>(places.size()) / 4096, 0.632, 0.03);
}

}  // namespace
}  // namespace moetune

#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "base/bf16.h"

namespace moetune {
namespace {

// FNV-1a over the little-endian bytes of 32-bit words.
uint64_t checksum(const RandomTable<float>& table) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (float value : table) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((word >> shift) & 0xFFu)) * 0x100000001B3u;
    }
  }
  return hash;
}

// Weights and inputs must be the same in every process and on every machine that takes part in
// tuning.
TEST(Random, BitsAreFixedForEver) {
  Random random(1, 2);
  EXPECT_EQ(random.next(), 13787722328404866039u);
  EXPECT_EQ(random.next(), 4409057131608428007u);
  EXPECT_EQ(checksum(normal_quantiles()), 14305963036669935361u);
}

TEST(Random, SeedAndStreamBothMatter) {
  std::set<uint64_t> firsts;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t stream = 0; stream < 100; ++stream) firsts.insert(Random(seed, stream).next());
  }
  EXPECT_EQ(firsts.size(), 10000u);
}

TEST(Random, NeighbouringStreamsAreUnrelated) {
  Random a(7, 0);
  Random b(7, 1);
  int equal_bits = 0;
  constexpr int kDraws = 10000;
  for (int i = 0; i < kDraws; ++i) equal_bits += 64 - std::popcount(a.next() ^ b.next());
  EXPECT_NEAR(equal_bits / (64.0 * kDraws), 0.5, 0.005);
}

TEST(Random, EveryBitIsFair) {
  Random random(3);
  std::array<int, 64> ones{};
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t bits = random.next();
    for (size_t bit = 0; bit < 64; ++bit) ones[bit] += static_cast<int>((bits >> bit) & 1u);
  }
  for (int count : ones) EXPECT_NEAR(count, kDraws / 2, 5 * std::sqrt(kDraws / 4));
}

TEST(Random, UniformStaysInsideItsOpenInterval) {
  Random random(4);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double value = random.uniform();
    ASSERT_GT(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Random, BelowIsFairAndBounded) {
  Random random(5);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  for (int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.below(1), 0u);
}

TEST(Random, NormalQuantilesAreNormal) {
  const RandomTable<float>& table = normal_quantiles();
  EXPECT_TRUE(std::is_sorted(table.begin(), table.end()));
  double second = 0;
  double fourth = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i], -table[table.size() - 1 - i]);
    second += std::pow(table[i], 2) / static_cast<double>(table.size());
    fourth += std::pow(table[i], 4) / static_cast<double>(table.size());
  }
  EXPECT_NEAR(second, 1.0, 1e-6);
  EXPECT_NEAR(fourth, 3.0, 0.05);
  EXPECT_NEAR(table[table.size() * 975 / 1000], 1.96, 0.01);
}

TEST(Random, BulkFillDrawsEveryEntryOfItsTable) {
  RandomTable<uint16_t> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint16_t>(i);
  Random random(6);
  std::vector<uint16_t> values(table.size() * 64 + 3);
  fill_random(random, table, values);
  std::vector<int> counts(table.size());
  for (uint16_t value : values) ++counts.at(value);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  EXPECT_GT(*least, 64 - 6 * 8);
  EXPECT_LT(*most, 64 + 6 * 8);
}

TEST(Random, BulkFillWritesExactlyItsSpan) {
  const RandomTable<uint16_t> table = normal_bf16_table(2.0f);
  for (size_t size = 0; size < 23; ++size) {
    std::vector<uint16_t> words(size + 2, 0x7FC1);
    Random random(8, size);
    fill_random(random, table, std::span(words).subspan(1, size));
    EXPECT_EQ(words.front(), 0x7FC1);
    EXPECT_EQ(words.back(), 0x7FC1);
    EXPECT_EQ(std::count(words.begin(), words.end(), 0x7FC1), 2);

    std::vector<uint8_t> bytes(size + 2, 0);
    for (int round = 0; round < 8; ++round) {
      std::vector<uint8_t> drawn(size);
      fill_random(random, drawn);
      for (size_t i = 0; i < size; ++i) bytes[i + 1] |= drawn[i];
    }
    EXPECT_EQ(std::count(bytes.begin() + 1, bytes.end() - 1, 0), 0);
  }
}

TEST(Random, NormalBf16HasTheDeviationAskedFor) {
  Random random(9);
  std::vector<uint16_t> values(100000);
  fill_random(random, normal_bf16_table(0.25f), values);
  double sum = 0;
  double squares = 0;
  for (uint16_t bits : values) {
    const double value = bf16_to_float(bits);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.005);
  EXPECT_NEAR(std::sqrt(squares / 1e5), 0.25, 0.005);
}

TEST(Random, ThreadsFillWithTheValuesOfOne) {
  RandomTable<uint16_t> words = normal_bf16_table(1);
  RandomTable<uint8_t> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  for (const size_t size : {size_t{0}, size_t{9}, size_t{200'000}, size_t{1'000'003}}) {
    for (const int threads : {1, 2, 7}) {
      Random one(3, 4), several(3, 4);
      std::vector<uint16_t> a(size), b(size);
      fill_random(one, words, std::span(a));
      fill_random(several, words, std::span(b), threads);
      EXPECT_EQ(a, b) << size << " by " << threads;
      std::vector<uint8_t> c(size), d(size);
      fill_random(one, bytes, std::span(c));
      fill_random(several, bytes, std::span(d), threads);
      EXPECT_EQ(c, d) << size << " by " << threads;
      EXPECT_EQ(one.next(), several.next()) << "both are left at the same place";
    }
  }
}

TEST(Random, SkippingIsDrawingAndForgetting) {
  Random drawn(1), skipped(1);
  for (int i = 0; i < 1000; ++i) drawn.next();
  skipped.skip(1000);
  EXPECT_EQ(drawn.next(), skipped.next());
}

}  // namespace
}  // namespace moetune

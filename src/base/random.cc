#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/parallel.h"

namespace moetune {

namespace {

constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;  // 2^64 / phi, odd
constexpr int kTableBits = 12;
constexpr uint64_t kTableMask = (1u << kTableBits) - 1;
constexpr size_t kIndicesPerDraw = 64 / kTableBits;
static_assert(draws_to_fill(kIndicesPerDraw) == 2);  // One is begun in any case.

// An odd step whose bits change often enough for the mixing to do its work (the same rule as in the
// paper).
uint64_t step_from(uint64_t bits) {
  const uint64_t step = Random::mix(bits) | 1u;
  return std::popcount(step ^ (step >> 1)) < 24 ? step ^ 0xAAAAAAAAAAAAAAAAu : step;
}

// The probability that a standard normal value is below x.
double normal_probability(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// Solves normal_probability(x) = p by bisection: the table is made once, and this needs no
// constants to trust.
double normal_quantile(double p) {
  double low = -10;
  double high = 10;
  for (int step = 0; step < 60; ++step) {
    const double middle = 0.5 * (low + high);
    (normal_probability(middle) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

RandomTable<float> make_normal_quantiles() {
  constexpr size_t kHalf = RandomTable<float>().size() / 2;
  std::array<double, kHalf> positive;
  double square_sum = 0;
  for (size_t i = 0; i < kHalf; ++i) {
    positive[i] = normal_quantile(0.5 + (static_cast<double>(i) + 0.5) / (2 * kHalf));
    square_sum += positive[i] * positive[i];
  }
  const double to_unit_variance = 1 / std::sqrt(square_sum / kHalf);
  RandomTable<float> table;
  for (size_t i = 0; i < kHalf; ++i) {
    // Rounded to f32, the last digits of a machine's erfc do not show (a test holds the table's
    // checksum).
    const auto value = static_cast<float>(positive[i] * to_unit_variance);
    table[kHalf + i] = value;
    table[kHalf - 1 - i] = -value;
  }
  return table;
}

template <typename T>
void fill_from_table(Random& random, const RandomTable<T>& table, std::span<T> out) {
  T* to = out.data();
  size_t left = out.size();
  for (; left >= kIndicesPerDraw; left -= kIndicesPerDraw) {
    const uint64_t bits = random.next();
    *to++ = table[bits & kTableMask];
    *to++ = table[(bits >> kTableBits) & kTableMask];
    *to++ = table[(bits >> (2 * kTableBits)) & kTableMask];
    *to++ = table[(bits >> (3 * kTableBits)) & kTableMask];
    *to++ = table[(bits >> (4 * kTableBits)) & kTableMask];
  }
  for (uint64_t bits = random.next(); left > 0; --left, bits >>= kTableBits) {
    *to++ = table[bits & kTableMask];
  }
}

// A draw's values are of one thread.
template <typename T>
void fill_in_parts(Random& random, const RandomTable<T>& table, std::span<T> out, int threads) {
  constexpr size_t kWorthAThread = size_t{1} << 16;
  const size_t parts = std::min(static_cast<size_t>(threads), out.size() / kWorthAThread);
  const auto draws = static_cast<int64_t>(out.size() / kIndicesPerDraw);
  if (parts < 2) {
    fill_from_table(random, table, out);
    return;
  }
  in_parts(static_cast<int>(parts), draws, [&](int64_t first, int64_t last) {
    Random own = random;
    own.skip(static_cast<uint64_t>(first));
    const auto begin = static_cast<size_t>(first) * kIndicesPerDraw;
    const size_t end = last == draws ? out.size() : static_cast<size_t>(last) * kIndicesPerDraw;
    fill_from_table(own, table, out.subspan(begin, end - begin));
  });
  random.skip(draws_to_fill(out.size()));
}

}  // namespace

Random::Random(uint64_t seed, uint64_t stream) {
  const uint64_t key = mix(mix(seed + kGoldenRatio) + stream);
  state_ = mix(key);
  step_ = step_from(key + kGoldenRatio);
}

float Random::normal() { return normal_quantiles()[next() >> (64 - kTableBits)]; }

const RandomTable<float>& normal_quantiles() {
  static const RandomTable<float> table = make_normal_quantiles();
  return table;
}

RandomTable<uint16_t> normal_bf16_table(float deviation) {
  RandomTable<uint16_t> table;
  std::transform(normal_quantiles().begin(), normal_quantiles().end(), table.begin(),
                 [deviation](float value) { return float_to_bf16(deviation * value); });
  return table;
}

void fill_random(Random& random, const RandomTable<uint16_t>& table, std::span<uint16_t> out) {
  fill_from_table(random, table, out);
}

void fill_random(Random& random, const RandomTable<uint8_t>& table, std::span<uint8_t> out) {
  fill_from_table(random, table, out);
}

void fill_random(Random& random, const RandomTable<uint16_t>& table, std::span<uint16_t> out,
                 int threads) {
  fill_in_parts(random, table, out, threads);
}

void fill_random(Random& random, const RandomTable<uint8_t>& table, std::span<uint8_t> out,
                 int threads) {
  fill_in_parts(random, table, out, threads);
}

void fill_random(Random& random, std::span<uint8_t> out) {
  uint8_t* to = out.data();
  size_t left = out.size();
  while (left > 0) {
    uint64_t bits = random.next();
    if constexpr (std::endian::native == std::endian::big) bits = __builtin_bswap64(bits);
    const size_t count = std::min(left, sizeof bits);
    std::memcpy(to, &bits, count);
    to += count;
    left -= count;
  }
}

}  // namespace moetune

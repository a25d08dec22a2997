// Random numbers for inputs, weights and routing: fast, splittable, and the same bits on every
// machine.
//
// A generator is a 64-bit counter that moves by an odd step and is mixed on the way out
// (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
// Start and step both follow from (seed, stream), so streams need no common order: expert 17's
// weights are the same whether or not anybody made expert 16's.
//
// Gigabytes of weights come from here. The bulk functions therefore cut several values out of each
// 64-bit draw, and get any distribution by looking 12-bit indices up in a table of 4096 equally
// likely values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moetune {

/// Thread-compatible. Copying one copies its position.
class Random {
 public:
  /// Different (seed, stream) pairs give unrelated sequences.
  explicit Random(uint64_t seed, uint64_t stream = 0);

  /// 64 uniform bits.
  uint64_t next() {
    state_ += step_;
    return mix(state_);
  }

  /// What so many calls of next() would have left.
  void skip(uint64_t draws) { state_ += draws * step_; }

  /// Uniform in the open interval (0, 1): never 0, so that its logarithm is finite.
  double uniform() { return (static_cast<double>(next() >> 12) + 0.5) * 0x1p-52; }

  /// Uniform in [0, bound), bound > 0. The bias is below bound / 2^32.
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(((next() >> 32) * bound) >> 32); }

  /// Standard normal, one of normal_quantiles().
  float normal();

  /// A bijection of 64-bit values in which every input bit changes every output bit half of the
  /// time.
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
  uint64_t step_;
};

/// Tables of the bulk functions: entry i is drawn with probability 1/4096.
template <typename T>
using RandomTable = std::array<T, 4096>;

/// The normal distribution at the probabilities (i + 1/2) / 4096, in ascending order: symmetric,
/// from -3.67 to 3.67, scaled to a variance of 1.
const RandomTable<float>& normal_quantiles();

/// normal_quantiles() times `deviation`, as bf16.
RandomTable<uint16_t> normal_bf16_table(float deviation);

/// How often fill_random() from a table calls next() for so many values.
constexpr uint64_t draws_to_fill(uint64_t values) { return values / 5 + 1; }

/// Fills `out` with independent draws from `table`.
void fill_random(Random& random, const RandomTable<uint16_t>& table, std::span<uint16_t> out);
void fill_random(Random& random, const RandomTable<uint8_t>& table, std::span<uint8_t> out);

/// The same values by several threads (>= 1); `random` is left where one thread leaves it.
void fill_random(Random& random, const RandomTable<uint16_t>& table, std::span<uint16_t> out,
                 int threads);
void fill_random(Random& random, const RandomTable<uint8_t>& table, std::span<uint8_t> out,
                 int threads);

/// Fills `out` with uniform bits (two uniform fp4 codes a byte, say).
void fill_random(Random& random, std::span<uint8_t> out);

}  // namespace moetune

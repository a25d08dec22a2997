#include "ops/moe/bad_codes.h"

#include <algorithm>
#include <cstring>

namespace moetune {
namespace {

// A byte repeated eight times.
constexpr uint64_t eight_times(uint8_t byte) { return 0x0101010101010101u * byte; }
constexpr uint64_t kHighBits = eight_times(0x80);

// The high bit of each byte whose lower seven bits are all ones. Nothing carries from byte to byte.
constexpr uint64_t lower_seven_ones(uint64_t bytes) {
  return ((bytes & eight_times(0x7F)) + eight_times(1)) & kHighBits;
}

// `may_be` says of eight bytes in a number whether `is_bad` may hold for one of them.
template <typename MayBe, typename IsBad>
const uint8_t* find_byte(const uint8_t* first, const uint8_t* last, MayBe may_be, IsBad is_bad) {
  uint64_t eight = 0;
  for (; last - first >= 8; first += 8) {
    std::memcpy(&eight, first, sizeof eight);
    if (may_be(eight)) break;
  }
  return std::find_if(first, last, is_bad);
}

}  // namespace

const uint8_t* find_e4m3_nan(const uint8_t* first, const uint8_t* last) {
  return find_byte(
      first, last, [](uint64_t codes) { return lower_seven_ones(codes) != 0; },
      [](uint8_t code) { return (code & 0x7F) == 0x7F; });
}

const uint8_t* find_bad_e4m3_scale(const uint8_t* first, const uint8_t* last) {
  return find_byte(
      first, last,
      [](uint64_t codes) { return (lower_seven_ones(codes) | (codes & kHighBits)) != 0; },
      [](uint8_t code) { return code >= 0x7F; });
}

const uint8_t* find_bad_ue8m0_scale(const uint8_t* first, const uint8_t* last) {
  return find_byte(
      first, last, [](uint64_t codes) { return (lower_seven_ones(codes) & codes) != 0; },
      [](uint8_t code) { return code == 0xFF; });
}

}  // namespace moetune

#include "ops/moe/bad_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace moetune {
namespace {

using Find = const uint8_t* (*)(const uint8_t*, const uint8_t*);

// Every byte at every place of rows around a register's length: found exactly where it is bad.
void finds_exactly(Find find, bool (*is_bad)(uint8_t)) {
  for (size_t length = 0; length <= 19; ++length) {
    for (size_t at = 0; at < std::max<size_t>(length, 1); ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::vector<uint8_t> row(length,
                                 0x7E);  // The largest good one, so that a carry would show.
        if (length > 0) row[at] = static_cast<uint8_t>(byte);
        const uint8_t* last = row.data() + length;
        const uint8_t* wanted = std::find_if(static_cast<const uint8_t*>(row.data()), last, is_bad);
        ASSERT_EQ(find(row.data(), last), wanted) << length << " " << at << " " << byte;
      }
    }
  }
}

TEST(BadCodes, NansOfE4m3HaveEitherSign) {
  finds_exactly(find_e4m3_nan, [](uint8_t code) { return code == 0x7F || code == 0xFF; });
}

TEST(BadCodes, ScalesOfE4m3HaveNoSign) {
  finds_exactly(find_bad_e4m3_scale, [](uint8_t code) { return code >= 0x7F; });
}

TEST(BadCodes, TheNanOfUe8m0IsItsLargestCode) {
  finds_exactly(find_bad_ue8m0_scale, [](uint8_t code) { return code == 0xFF; });
}

}  // namespace
}  // namespace moetune

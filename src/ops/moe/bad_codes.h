// Codes and scales that no quantiser writes, found eight at a time: whole layers are looked
// through while their weights are packed.
#pragma once

#include <cstdint>

namespace moetune {

/// The first NaN of e4m3 in [first, last), of either sign; `last` where there is none.
const uint8_t* find_e4m3_nan(const uint8_t* first, const uint8_t* last);
/// The first scale of e4m3 that is NaN or has its sign bit set.
const uint8_t* find_bad_e4m3_scale(const uint8_t* first, const uint8_t* last);
/// The first NaN of ue8m0.
const uint8_t* find_bad_ue8m0_scale(const uint8_t* first, const uint8_t* last);

}  // namespace moetune

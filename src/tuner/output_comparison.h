// Whether the outputs of a candidate are those of the default, up to what another order of summing
// may change.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "moetune/tensor.h"

namespace moetune {

/// How far floating-point outputs may be apart.
struct OutputTolerance {
  double relative_rms;  ///< Per row: RMS of the differences over the RMS of the reference.
  double largest;       ///< Per value: difference over the larger of the value and the row's RMS.
};

/// f32: room for sums of about 10^5 terms in another order. f16 and bf16: room for one more
/// rounding of every value (2^-9 of it for bf16) and for inputs of that rounding which fell the
/// other way.
OutputTolerance output_tolerance(DataType type);

/// What is wrong with `rows` of an output, the first thing found: "output row 17: value 3 is not
/// finite". Empty: nothing. `reference` holds all rows, `got` those of `rows`, one after the other,
/// both in host memory. Types other than f32, f16 and bf16 must agree bit for bit.
std::string why_different(const Tensor& reference, const Tensor& got,
                          std::span<const int64_t> rows);

}  // namespace moetune

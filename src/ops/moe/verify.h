// Whether a kernel's output is right: against reference rows, exactly or closely, and on which rows
// to look.
//
// Close, per output row, on realistic data. What separates a right kernel from the reference: sums
// in f32, which now and then move a value of h, or of the output, over a rounding boundary to the
// neighbouring bf16. Relative RMS measured on hidden x intermediate from 32 x 16 to 7168 x 256
// (tests/ops/verify_test.cc holds what the limits rest on):
//   below 6e-4   kernels that follow the definition, in any order of summation
//   3e-3, 4e-3   kernels that round once more, or elsewhere (routing weights applied to h before it
//                is rounded, say): these are right too
//   from 8e-3    the least of eight experts with a routing weight off by 4 %
//   above 1e-1   an expert dropped, gate and up swapped, another token's row
// The limits lie between the second group and the third. One wrong row of a weight matrix makes one
// wrong value per row of output, which shows as a value far beyond its own limit. A single wrong
// weight is below the rounding of bf16: only the exact check sees that.
//
// Products of e4m3 by e4m3 are another matter. Hopper's tensor cores keep some 14 bits of their
// sum, and kernels of serving engines then round gate and up to bf16: together that moves values of
// h over to the next code of e4m3, an eighth away, and where it is the largest of its block, the
// block's scale too. Right rows of such kernels are off by 3e-3 to 2.2e-2, in the smallest layers
// by up to 6e-2; the limits for them see what is wrong by more, an expert that is missing or
// another's, and not a routing weight that is off by 4 %.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moetune/measuring.h"
#include "moetune/moe_spec.h"
#include "moetune/tensor.h"
#include "ops/moe/arguments.h"
#include "ops/moe/reference.h"

namespace moetune {

/// What a comparison saw.
struct OutputCheck {
  Verdict verdict;
  /// Exact: unequal values. Close: values beyond the limit of a single one. Either: not finite.
  int64_t wrong_values = 0;
  // Of the worst row, all 0 in an exact comparison:
  double one_minus_cosine = 0;
  double relative_rms = 0;   ///< RMS of the error over RMS of the reference.
  double largest_error = 0;  ///< Largest error of a value over its limit; more than 1 is wrong.
};

/// Limits of a close comparison, for every row and value.
struct CloseLimits {
  double one_minus_cosine;
  double relative_rms;
  /// A value may be off by ulps · |reference| · 2^-8 + share · RMS of the reference row. The first
  /// is the output's rounding; the second that of h: being random in sign, its sum over k terms
  /// grows with sqrt(k), as the row's RMS itself does.
  double ulps;
  double share;
};
CloseLimits close_limits(DataType output);
/// Between kernels that round at different places (reference.h): each once more than the other.
CloseLimits other_rounding_limits(DataType output);
/// For kernels that multiply e4m3 by e4m3 with sums of few bits.
CloseLimits fp8_product_limits(DataType output);

/// `rows` are the output's rows of `reference.tokens`, one after the other: bf16 or f32 [tokens,
/// hidden] in host memory. Values must equal the reference rounded to the output type; zeros of
/// either sign are equal. The reason names the first wrong value, by token and column.
OutputCheck compare_exact(const ReferenceRows& reference, const Tensor& rows);

/// The same on realistic data: not finite first, then each row against the limits. The reason names
/// the first wrong row. A reference row of zeros (no expert of this rank) must be met by zeros. The
/// same result for any number of threads (>= 1).
OutputCheck compare_close(const ReferenceRows& reference, const Tensor& rows,
                          const CloseLimits& limits, int threads = 1);
/// Within close_limits(rows.type).
OutputCheck compare_close(const ReferenceRows& reference, const Tensor& rows, int threads = 1);

/// The rows of `tokens` of an output [tokens, hidden], one after the other, as the bytes that the
/// comparisons read.
std::vector<std::byte> gather_rows(const Tensor& output, std::span<const int64_t> tokens);

/// Up to `limit` (>= 1) distinct tokens worth checking, ascending: the first and the last; those
/// beside tile edges, of the call and of the busiest expert's rows; then whoever touches the most
/// experts of this rank that no other does; then random ones. All of them where limit allows.
std::vector<int64_t> sample_rows(const FusedMoeSpec& spec, const MoeInputs& inputs, int64_t limit,
                                 uint64_t seed);

}  // namespace moetune

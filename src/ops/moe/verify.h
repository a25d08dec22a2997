// Whether a kernel's output is right: against reference rows, exactly or closely, and on which rows
// to look.
//
// Close, per output row, on realistic data. What separates a right kernel from the reference: sums
// in f32, which now and then move a value of h, or of the output, over a rounding boundary to the
// neighbouring bf16. Measured over shapes from 32 to 7168 (and held by a test): relative RMS below
// 1e-3, most of it from the output's rounding. A kernel that rounds once more where the definition
// does not (weights applied to h before GEMM 2, say) stays below 2e-3. The smallest fault that
// realistic data can show at all, one expert's routing weight wrong by 3 % among eight, gives 1e-2;
// a dropped expert, swapped gate and up, or a neighbour's row give 0.1 and more. The limits are
// between the two groups. Single wrong elements of a weight matrix are far below bf16's rounding:
// only the exact check sees those.
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
  int64_t wrong_values =
      0;  ///< Exact: unequal ones. Close: ones beyond the limit of a single value, or not finite.
  // Of the worst row, all 0 in an exact comparison:
  double one_minus_cosine = 0;
  double relative_rms = 0;   ///< RMS of the error over RMS of the reference.
  double largest_error = 0;  ///< Largest error of a value over its limit; more than 1 is wrong.
};

struct CloseLimits {
  double one_minus_cosine;
  double relative_rms;
  /// A value may be off by ulps · |reference| · 2^-8 + share · RMS of the reference row. The first
  /// is the output's rounding; the second that of h: random in sign, its sum over k terms grows
  /// with sqrt(k), as the row's RMS itself does.
  double ulps;
  double share;
};
CloseLimits close_limits(DataType output);

/// `rows` are the output's rows of `reference.tokens`, one after the other: bf16 or f32 [tokens,
/// hidden] in host memory. Values must equal the reference rounded to the output type; zeros of
/// either sign are equal. The reason names the first wrong value, by token and column.
OutputCheck compare_exact(const ReferenceRows& reference, const Tensor& rows);

/// The same on realistic data: not finite first, then each row against close_limits(rows.type). The
/// reason names the first wrong row. A reference row of zeros (no expert of this rank) must be met
/// by zeros.
OutputCheck compare_close(const ReferenceRows& reference, const Tensor& rows);

/// The rows of `tokens` of an output [tokens, hidden], one after the other, as the bytes that the
/// comparisons read.
std::vector<std::byte> gather_rows(const Tensor& output, std::span<const int64_t> tokens);

/// Up to `limit` (>= 1) distinct tokens worth checking, ascending: the first and the last; those
/// beside tile edges, of the call and of the busiest expert's rows; then whoever touches the most
/// experts of this rank that no other does; then random ones. All of them where limit allows.
std::vector<int64_t> sample_rows(const FusedMoeSpec& spec, const MoeInputs& inputs, int64_t limit,
                                 uint64_t seed);

}  // namespace moetune

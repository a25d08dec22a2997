// What this machine can do at best: the two ceilings that every CPU kernel time is compared with.
#pragma once

#include <cstddef>

#include "cpu/kernels/kernel_table.h"
#include "cpu/threads.h"
#include "moetune/result.h"

namespace moetune::cpu {

/// Bytes per second at which all threads of `pool` together read `bytes` that no cache holds, best
/// of several rounds within `seconds`. The loop is the kernels' own: full vectors, prefetch, huge
/// pages. `cold_bytes` is how much other memory has to be read between two rounds for that (three
/// times the last-level cache, say). kOutOfMemory when the buffer cannot be had.
Result<double> read_bandwidth(size_t bytes, size_t cold_bytes, const KernelTable& kernels,
                              ThreadPool& pool, double seconds = 0.3);

/// Operations per second, two per product, of the multiply-accumulate that the kernels of a weight
/// format are made of, on registers. All threads together, best of several rounds within `seconds`.
double multiply_rate(const FormatKernels& kernels, ThreadPool& pool, double seconds = 0.3);

}  // namespace moetune::cpu

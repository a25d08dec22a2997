#include "cpu/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "base/status_macros.h"
#include "cpu/buffer.h"

namespace moetune::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Pieces that threads take while they read: small enough that nobody waits for a slow one at the
// end.
constexpr int64_t kPieceBytes = 64 << 10;

}  // namespace

Result<double> read_bandwidth(size_t bytes, size_t cold_bytes, const KernelTable& kernels,
                              ThreadPool& pool, double seconds) {
  const size_t window = std::max<size_t>(bytes / 64 * 64, 64);
  const size_t windows = window >= cold_bytes ? 1 : (cold_bytes + window - 1) / window + 1;
  MOETUNE_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(windows * window));
  pool.for_pieces(static_cast<int64_t>(buffer.bytes()), kPieceBytes,
                  [&](int64_t first, int64_t last) {
                    for (int64_t i = first; i < last; ++i)
                      buffer.data()[i] = static_cast<uint8_t>(i * 31);
                  });
  std::atomic<uint64_t> sum{0};
  double best = 0;
  const Clock::time_point start = Clock::now();
  for (size_t round = 0; round < 3 || seconds_since(start) < seconds; ++round) {
    const uint8_t* data = buffer.data() + round % windows * window;
    const Clock::time_point before = Clock::now();
    pool.for_pieces(static_cast<int64_t>(window), kPieceBytes, [&](int64_t first, int64_t last) {
      sum.fetch_add(kernels.read(data + first, static_cast<size_t>(last - first)),
                    std::memory_order_relaxed);
    });
    best = std::max(best, static_cast<double>(window) / seconds_since(before));
  }
  return best;
}

double multiply_rate(const FormatKernels& kernels, ThreadPool& pool, double seconds) {
  constexpr int64_t kIterations = 200'000;
  double best = 0;
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < 3 || seconds_since(start) < seconds; ++round) {
    std::atomic<double> operations{0};
    const Clock::time_point before = Clock::now();
    pool.run([&](int) {
      float sink = 0;
      operations.fetch_add(kernels.multiply(kIterations, &sink) * kIterations);
    });
    best = std::max(best, operations.load() / seconds_since(before));
  }
  return best;
}

}  // namespace moetune::cpu

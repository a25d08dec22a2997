// A team of threads that starts a parallel region within about a microsecond.
//
// A layer is a few hundred microseconds to a few hundred milliseconds long and is called in a loop,
// so workers wait for the next region by spinning for a bounded time, and sleep on a futex after
// it. The caller is thread 0 of every region. Workers are pinned to a processor each; the caller's
// own affinity is the host program's business (ScopedAffinity pins it for as long as somebody
// measures).
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace moetune::cpu {

/// Spins `spins` times, then sleeps, until `value` is no longer `old`. Acquires what was released
/// with the new value.
void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old, int spins);

/// Meets `threads` threads again and again. Everything before a thread's arrival is seen by all
/// after it.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(static_cast<uint32_t>(threads)) {}
  void arrive_and_wait();

 private:
  const uint32_t threads_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

/// Hands out 0, 1, 2, ... to whoever asks next.
class alignas(64) TaskCounter {
 public:
  int64_t next(int64_t count = 1) { return next_.fetch_add(count, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> next_{0};
};

/// Not copyable, not movable. One region at a time: `run` may be called by any thread, by one at
/// once.
class ThreadPool {
 public:
  /// One thread per entry of `cpus`, the caller of `run` included: cpus[0] is meant for it, the
  /// others get a worker pinned to each. A processor that cannot be pinned to (-1, or outside the
  /// affinity mask) leaves its worker unpinned.
  explicit ThreadPool(std::vector<int> cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(cpus_.size()); }
  const std::vector<int>& cpus() const { return cpus_; }

  /// Calls body(i) for every i < size(), each on its thread, 0 on this one, and returns when all
  /// have. `body` must not throw and must not call run().
  template <typename Body>
  void run(Body&& body) {
    run_erased([](void* context,
                  int thread) { (*static_cast<std::remove_reference_t<Body>*>(context))(thread); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  /// Calls body(first, last) for pieces of [0, count) of at most `piece` items that cover it, on
  /// whichever thread is idle.
  template <typename Body>
  void for_pieces(int64_t count, int64_t piece, Body&& body) {
    TaskCounter counter;
    run([&](int) {
      for (int64_t first = counter.next(piece); first < count; first = counter.next(piece))
        body(first, first + piece < count ? first + piece : count);
    });
  }

 private:
  using Task = void (*)(void* context, int thread);
  void run_erased(Task task, void* context);
  void work(int thread);

  std::vector<int> cpus_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint32_t> region_{0};
  alignas(64) std::atomic<uint32_t> running_{0};
  std::vector<std::thread> workers_;
};

/// Pins the calling thread to one processor for the object's lifetime, and restores the affinity it
/// had.
class ScopedAffinity {
 public:
  explicit ScopedAffinity(int cpu);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

  bool pinned() const { return !saved_.empty(); }

 private:
  std::vector<uint8_t> saved_;  // The kernel's mask, of whatever size it takes here.
};

}  // namespace moetune::cpu

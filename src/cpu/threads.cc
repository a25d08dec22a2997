#include "cpu/threads.h"

#include <pthread.h>
#include <sched.h>

#include <utility>

namespace moetune::cpu {
namespace {

// About 100 us on current processors: longer than the gap between two layers of one model, far
// shorter than anything a user would notice in the load of an idle process.
constexpr int kRegionSpins = 4000;
// Barriers inside a region are met within microseconds, unless there are more threads than
// processors.
constexpr int kBarrierSpins = 4000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

bool pin_to(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<size_t>(cpu), &mask);
  return pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask) == 0;
}

}  // namespace

void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

void Barrier::arrive_and_wait() {
  const uint32_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    round_.notify_all();
  } else {
    wait_while_equal(round_, round, kBarrierSpins);
  }
}

ThreadPool::ThreadPool(std::vector<int> cpus) : cpus_(std::move(cpus)) {
  if (cpus_.empty()) cpus_.push_back(-1);
  workers_.reserve(cpus_.size() - 1);
  for (int thread = 1; thread < size(); ++thread)
    workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(Task task, void* context) {
  task_ = task;
  context_ = context;
  running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
  task(context, 0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire))
    wait_while_equal(running_, left, kBarrierSpins);
}

void ThreadPool::work(int thread) {
  (void)pin_to(cpus_[static_cast<size_t>(thread)]);
  for (uint32_t seen = 0;; ++seen) {
    wait_while_equal(region_, seen, kRegionSpins);
    if (stopping_.load(std::memory_order_relaxed)) return;
    task_(context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

ScopedAffinity::ScopedAffinity(int cpu) {
  // The kernel refuses a mask shorter than its own; no machine has more than a few thousand
  // processors.
  for (size_t bytes = sizeof(cpu_set_t); bytes <= 64 * sizeof(cpu_set_t); bytes *= 2) {
    std::vector<uint8_t> mask(bytes);
    if (sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) continue;
    if (pin_to(cpu)) saved_ = std::move(mask);
    return;
  }
}

ScopedAffinity::~ScopedAffinity() {
  if (pinned())
    (void)sched_setaffinity(0, saved_.size(), reinterpret_cast<const cpu_set_t*>(saved_.data()));
}

}  // namespace moetune::cpu

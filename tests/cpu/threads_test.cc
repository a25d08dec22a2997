#include "cpu/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <numeric>
#include <set>

#include "cpu/topology.h"

namespace moetune::cpu {
namespace {

std::vector<int> anywhere(int threads) {
  return std::vector<int>(static_cast<size_t>(threads), -1);
}

TEST(ThreadPoolThreads, EveryThreadRunsEveryRegionOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(anywhere(threads));
    std::vector<int> calls(static_cast<size_t>(threads));
    for (int region = 0; region < 200; ++region)
      pool.run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
    for (const int count : calls) EXPECT_EQ(count, 200);
  }
}

TEST(ThreadPoolThreads, WhatOneRegionWroteTheNextOneReads) {
  ThreadPool pool(anywhere(3));
  std::vector<int> values(3);
  for (int region = 1; region <= 300; ++region) {
    pool.run([&](int thread) { values[static_cast<size_t>((thread + region) % 3)] += 1; });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), 0), 3 * region);
  }
}

TEST(ThreadPoolThreads, PiecesCoverARangeExactlyOnce) {
  ThreadPool pool(anywhere(4));
  for (const int64_t count : {0, 1, 7, 1000}) {
    std::vector<int> taken(static_cast<size_t>(count));
    pool.for_pieces(count, 3, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) ++taken[static_cast<size_t>(i)];
    });
    for (const int times : taken) ASSERT_EQ(times, 1);
  }
}

TEST(ThreadPoolThreads, SleepingWorkersWakeUp) {
  ThreadPool pool(anywhere(3));
  std::atomic<int> calls{0};
  for (int region = 0; region < 3; ++region) {
    pool.run([&](int) { ++calls; });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // Far beyond the spinning.
  }
  EXPECT_EQ(calls, 9);
}

TEST(ThreadPoolThreads, APoolMayBeUsedByOneThreadAfterTheOther) {
  ThreadPool pool(anywhere(2));
  int sum = 0;
  for (int i = 0; i < 4; ++i)
    std::thread([&] {
      pool.run([&](int thread) {
        if (thread == 0) ++sum;
      });
    }).join();
  EXPECT_EQ(sum, 4);
}

TEST(ThreadPoolThreads, UnusedPoolsShutDown) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(anywhere(4));
}

TEST(BarrierThreads, NobodyPassesBeforeAllHaveArrived) {
  constexpr int kThreads = 4;
  ThreadPool pool(anywhere(kThreads));
  Barrier barrier(kThreads);
  std::vector<int> progress(kThreads);
  std::atomic<int> violations{0};
  pool.run([&](int thread) {
    for (int step = 1; step <= 200; ++step) {
      progress[static_cast<size_t>(thread)] = step;
      barrier.arrive_and_wait();
      for (const int other : progress)
        if (other != step) ++violations;
      barrier.arrive_and_wait();
    }
  });
  EXPECT_EQ(violations, 0);
}

TEST(AffinityThreads, WorkersArePinnedAndTheCallerIsLeftAlone) {
  const std::vector<int> before = affinity_mask();
  ThreadPool pool(std::vector<int>{before.front(), before.back()});
  std::vector<int> worker;
  pool.run([&](int thread) {
    if (thread == 1) worker = affinity_mask();
  });
  EXPECT_EQ(worker, std::vector<int>{before.back()});
  EXPECT_EQ(affinity_mask(), before);
}

TEST(AffinityThreads, AScopePinsTheCallerAndRestoresItsMask) {
  const std::vector<int> before = affinity_mask();
  {
    const ScopedAffinity pin(before.back());
    EXPECT_TRUE(pin.pinned());
    EXPECT_EQ(affinity_mask(), std::vector<int>{before.back()});
  }
  EXPECT_EQ(affinity_mask(), before);
  {
    const ScopedAffinity pin(-1);
    EXPECT_FALSE(pin.pinned());
  }
  EXPECT_EQ(affinity_mask(), before);
}

}  // namespace
}  // namespace moetune::cpu

// What a layer call costs the host beside what the driver takes: with a driver that does nothing.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "cuda/fake_driver.h"
#include "cuda/mma/runner.h"
#include "cuda/mma_cases.h"
#include "cuda/nvrtc.h"
#include "ops/moe/weights.h"

namespace moetune::cuda {
namespace {

constexpr double kMostMicroseconds = 5;

TEST(MmaHostCostTiming, ALayerCallTakesTheHostLessThanFiveMicroseconds) {
  const auto nvrtc = load_nvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().message;
  const Driver driver = fake::make_driver();
  fake::gpu().free_bytes = size_t{1} << 40;
  auto context = Context::open(driver, 0);
  ASSERT_TRUE(context.ok()) << context.error().message;
  const FusedMoeSpec spec = mma_spec(2048, 768, 16, 8, WeightFormat::kNvfp4);
  auto runner = make_mma_runner(spec, *context);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  auto source = make_random_weights(spec, DataKind::kRealistic, 1);
  ASSERT_TRUE(source.ok());
  const auto weights = (*runner)->pack("fragments", **source);
  ASSERT_TRUE(weights.ok()) << weights.error().message;

  for (int64_t tokens : {1, 16, 64, 2048, 8192}) {
    const Candidate candidate = (*runner)->default_candidate(tokens);
    const auto layer = (*runner)->compile(candidate, tokens);
    ASSERT_TRUE(layer.ok()) << layer.error().message;
    char memory[64];  // An address: nothing is read or written.
    auto* const somewhere =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory) + 15) & ~uintptr_t{15});
    const Tensors arguments = {{"hidden", DataType::kBf16, {tokens, spec.hidden}, somewhere},
                               {"logits", DataType::kF32, {tokens, spec.global_experts}, somewhere},
                               {"output", DataType::kBf16, {tokens, spec.hidden}, somewhere}};
    const Call call{&arguments, weights->get(), somewhere,
                    (*runner)->workspace_bytes(candidate, tokens), nullptr};
    ASSERT_TRUE((*layer)->run(call).ok());
    double best_us = 1e9;
    constexpr int kCalls = 2000;
    fake::gpu().launches = 0;
    for (int round = 0; round < 20; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) (void)(*layer)->run(call);
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      best_us = std::min(best_us, took.count() / kCalls);
    }
    const int64_t launches = fake::gpu().launches / (20 * kCalls);
    std::printf("%5lld tokens: %.2f us of the host for %lld launches\n",
                static_cast<long long>(tokens), best_us, static_cast<long long>(launches));
    EXPECT_GE(launches, 3);
    EXPECT_LE(best_us, kMostMicroseconds);
  }
}

}  // namespace
}  // namespace moetune::cuda

// A layer's workspace where it is the caller's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "moetune/fused_moe.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWorkspaceTokens = 5;

class CallersWorkspace : public ::testing::Test {
 protected:
  CallersWorkspace() {
    spec_.hidden = 64;
    spec_.intermediate = 32;
    spec_.experts = spec_.global_experts = 4;
    spec_.top_k = 2;
    hidden_.assign(static_cast<size_t>(kWorkspaceTokens * spec_.hidden), 0x3F80);
    for (int i = 0; i < kWorkspaceTokens * 4; ++i) logits_.push_back(std::sin(float(i)));
  }

  std::unique_ptr<FusedMoe> make(bool is_callers) {
    auto weights = std::move(random_weights(spec_, 1)).value();
    return std::move(FusedMoe::create(spec_, *weights,
                                      {.device = "cpu",
                                       .max_tokens = kWorkspaceTokens,
                                       .threads = 1,
                                       .defaults_only = true,
                                       .caller_workspace = is_callers}))
        .value();
  }

  Status run(FusedMoe& layer) {
    output_.assign(hidden_.size(), 0xFFFF);
    return layer.run(kWorkspaceTokens, hidden_.data(), logits_.data(), output_.data());
  }

  FusedMoeSpec spec_;
  std::vector<uint16_t> hidden_, output_;
  std::vector<float> logits_;
};

TEST_F(CallersWorkspace, GivesTheSameBitsAsTheLayersOwn) {
  const auto own = make(false);
  ASSERT_TRUE(run(*own).ok());
  const std::vector<uint16_t> expected = output_;
  const auto callers = make(true);
  ASSERT_EQ(callers->workspace_bytes(), own->workspace_bytes());
  ASSERT_GT(own->workspace_bytes(), 0u);
  struct alignas(256) Block {
    uint8_t bytes[256];
  };
  std::vector<Block> memory(callers->workspace_bytes() / sizeof(Block) + 1);
  for (Block& block : memory) std::fill(std::begin(block.bytes), std::end(block.bytes), 0xFF);
  ASSERT_TRUE(callers->set_workspace(memory.data(), callers->workspace_bytes()).ok());
  ASSERT_TRUE(run(*callers).ok());
  EXPECT_EQ(output_, expected);
}

TEST_F(CallersWorkspace, IsAskedForBeforeTheFirstRunAndCheckedForItsSize) {
  const auto layer = make(true);
  const Status without = run(*layer);
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.error().message, HasSubstr("no workspace"));
  alignas(256) uint8_t small[256];
  ASSERT_GT(layer->workspace_bytes(), sizeof small);
  const Status too_small = layer->set_workspace(small, sizeof small);
  ASSERT_FALSE(too_small.ok());
  EXPECT_THAT(too_small.error().message, HasSubstr("a workspace of 256 bytes"));
  EXPECT_FALSE(layer->set_workspace(small + 1, layer->workspace_bytes()).ok());
  EXPECT_FALSE(run(*layer).ok());
}

TEST_F(CallersWorkspace, IsRefusedByALayerThatHasItsOwn) {
  const auto layer = make(false);
  alignas(256) uint8_t memory[256];
  EXPECT_FALSE(layer->set_workspace(memory, sizeof memory).ok());
  EXPECT_TRUE(run(*layer).ok());
}

}  // namespace
}  // namespace moetune

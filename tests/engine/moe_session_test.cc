// What is measured of a layer, put together.
#include "engine/moe_session.h"

#include <gtest/gtest.h>

#include "moetune/fused_moe.h"

namespace moetune {
namespace {

// A rank of DeepSeek-V3 with 8 experts: of its router's 8 groups 4 are kept, too few to choose 8.
TEST(ExactProbe, IsValidForARankWithFewerExpertsThanItsRoutersGroupsNeed) {
  for (const int ep : {1, 8, 32, 64}) {
    const FusedMoeSpec spec = layer_spec("deepseek-v3", {.ep = ep}).value();
    ASSERT_TRUE(validate(spec).ok());
    const Status valid = validate(exact_probe(spec));
    EXPECT_TRUE(valid.ok()) << "ep " << ep << ": " << valid.error().message;
  }
}

}  // namespace
}  // namespace moetune

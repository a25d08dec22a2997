#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "moetune/moe_spec.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

FusedMoeSpec qwen3() {
  return {.hidden = 2048, .intermediate = 768, .experts = 128, .global_experts = 128, .top_k = 8};
}

struct Fault {
  const char* says;
  std::function<void(FusedMoeSpec&)> make;
};

TEST(Spec, EachFaultIsNamed) {
  ASSERT_TRUE(validate(qwen3()).ok());
  const std::vector<Fault> faults = {
      {"hidden is 0", [](FusedMoeSpec& s) { s.hidden = 0; }},
      {"hidden is -2048", [](FusedMoeSpec& s) { s.hidden = -2048; }},
      {"intermediate is 0", [](FusedMoeSpec& s) { s.intermediate = 0; }},
      {"intermediate is 9223372036854775807",
       [](FusedMoeSpec& s) { s.intermediate = std::numeric_limits<int64_t>::max(); }},
      {"experts is 0", [](FusedMoeSpec& s) { s.experts = s.global_experts = 0; }},
      {"experts is 1000000", [](FusedMoeSpec& s) { s.experts = s.global_experts = 1000000; }},
      {"experts is 129; it must be from 1 to 128", [](FusedMoeSpec& s) { s.experts = 129; }},
      {"ep is 1", [](FusedMoeSpec& s) { s.experts = 64; }},
      {"ep is 0", [](FusedMoeSpec& s) { s.ep = 0; }},
      {"tp is 0", [](FusedMoeSpec& s) { s.tp = 0; }},
      {"top_k is 0", [](FusedMoeSpec& s) { s.top_k = 0; }},
      {"top_k is 129", [](FusedMoeSpec& s) { s.top_k = 129; }},
      {"128 experts do not divide into 3", [](FusedMoeSpec& s) { s.router.groups = 3; }},
      {"groups is 0", [](FusedMoeSpec& s) { s.router.groups = 0; }},
      {"top_groups is 2; it must be from 1 to 1", [](FusedMoeSpec& s) { s.router.top_groups = 2; }},
      {"the best 1 of 32 groups have only 4 experts",
       [](FusedMoeSpec& s) { s.router.groups = 32; }},
      {"scale is nan",
       [](FusedMoeSpec& s) { s.router.scale = std::numeric_limits<float>::quiet_NaN(); }},
      {"scale is 0", [](FusedMoeSpec& s) { s.router.scale = 0; }},
      {"output type i32", [](FusedMoeSpec& s) { s.output = DataType::kI32; }},
      {"must be even with nvfp4",
       [](FusedMoeSpec& s) {
         s.weights = WeightFormat::kNvfp4;
         s.intermediate = 361;
       }},
  };
  for (const Fault& fault : faults) {
    FusedMoeSpec spec = qwen3();
    fault.make(spec);
    const Status status = validate(spec);
    ASSERT_FALSE(status.ok()) << fault.says;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr(fault.says));
  }
}

TEST(Spec, AwkwardSizesAreFine) {
  for (int64_t size : {2880, 1408, 1856, 2688, 192, 96, 176, 360, 352, 2, 18}) {
    for (WeightFormat format :
         {WeightFormat::kBf16, WeightFormat::kNvfp4, WeightFormat::kFp8Block}) {
      FusedMoeSpec spec = qwen3();
      spec.hidden = spec.intermediate = size;
      spec.weights = format;
      EXPECT_TRUE(validate(spec).ok()) << size << " " << to_string(format);
    }
  }
  FusedMoeSpec odd = qwen3();
  odd.hidden = 1;
  odd.intermediate = 37;
  EXPECT_TRUE(validate(odd).ok());
}

TEST(Spec, NamesAreReadAsTheyAreWritten) {
  for (int i = 0; i < 6; ++i) {
    const auto value = static_cast<WeightFormat>(i);
    EXPECT_EQ(parse_weight_format(to_string(value)), value);
  }
  for (int i = 0; i < 4; ++i) {
    const auto value = static_cast<Activation>(i);
    EXPECT_EQ(parse_activation(to_string(value)), value);
  }
  for (int i = 0; i < 3; ++i) {
    const auto value = static_cast<Score>(i);
    EXPECT_EQ(parse_score(to_string(value)), value);
  }
  EXPECT_EQ(parse_activation_format("a16"), ActivationFormat::kA16);
  EXPECT_STREQ(to_string(WeightFormat::kFp8Block), "fp8-block");
  for (const char* text : {"", "NVFP4", "nvfp4 ", "bf1", "?"}) {
    EXPECT_EQ(parse_weight_format(text), std::nullopt);
    EXPECT_EQ(parse_activation(text), std::nullopt);
    EXPECT_EQ(parse_score(text), std::nullopt);
  }
}

TEST(Spec, ExpertBytesCountCodesAndScales) {
  FusedMoeSpec spec{
      .hidden = 6144, .intermediate = 256, .experts = 256, .global_experts = 256, .top_k = 8};
  const int64_t weights = int64_t{3} * 6144 * 256;
  EXPECT_EQ(expert_weight_bytes(spec), weights * 2);
  spec.weights = WeightFormat::kNvfp4;
  EXPECT_EQ(expert_weight_bytes(spec), weights / 2 + weights / 16 + 3 * 4);
  spec.weights = WeightFormat::kFp8;
  EXPECT_EQ(expert_weight_bytes(spec), weights + 3 * 4);
  spec.weights = WeightFormat::kFp8Block;
  EXPECT_EQ(expert_weight_bytes(spec), weights + weights / (128 * 128) * 4);
  spec.weights = WeightFormat::kMxfp4;
  EXPECT_EQ(expert_weight_bytes(spec), weights / 2 + weights / 32);
}

TEST(Spec, ShortBlocksHaveAWholeScale) {
  FusedMoeSpec spec{.hidden = 24, .intermediate = 6, .experts = 2, .global_experts = 2, .top_k = 1};
  spec.weights = WeightFormat::kNvfp4;
  // w13: 12 rows of 24 codes and 2 scales; w2: 24 rows of 6 codes and 1 scale.
  EXPECT_EQ(expert_weight_bytes(spec), 12 * (12 + 2) + 24 * (3 + 1) + 3 * 4);
  spec.activation = Activation::kRelu2;
  EXPECT_EQ(expert_weight_bytes(spec), 6 * (12 + 2) + 24 * (3 + 1) + 2 * 4);
}

}  // namespace
}  // namespace moetune

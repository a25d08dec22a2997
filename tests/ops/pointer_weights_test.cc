// Weights out of a program's own memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "moetune/moe_weights.h"
#include "ops/moe/weights.h"
#include "ops/moe_testing.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;
using testing_moe::kWeightFormats;
using testing_moe::small_spec;

/// The pointers of a chunk as it is: gate, then up, then down.
ExpertPointers pointers_to(const FusedMoeSpec& spec, const Tensors& chunk) {
  const auto part = [&](const char* name, bool second) -> MatrixPointer {
    const Tensor* tensor = find(chunk, name);
    if (tensor == nullptr) return {};
    return {tensor->as<std::byte>() + (second ? tensor->bytes() / 2 : 0)};
  };
  const bool gated = spec.gated();
  ExpertPointers at;
  at.gate = part("w13", false);
  at.up = part("w13", gated);
  at.down = part("w2", false);
  at.gate_scales = part("w13_scales", false);
  at.up_scales = part("w13_scales", gated);
  at.down_scales = part("w2_scales", false);
  if (const Tensor* global = find(chunk, "w13_global")) {
    at.gate_global = global->as<float>()[0];
    at.up_global = global->as<float>()[1];
    at.down_global = *find(chunk, "w2_global")->as<float>();
  }
  if (const Tensor* bias = find(chunk, "w13_bias")) {
    at.gate_bias = bias->as<float>();
    at.up_bias = bias->as<float>() + (gated ? spec.intermediate : 0);
    at.down_bias = find(chunk, "w2_bias")->as<float>();
  }
  return at;
}

class PointerWeights : public testing::TestWithParam<WeightFormat> {};

TEST_P(PointerWeights, AreTheWeightsTheyPointTo) {
  for (const bool bias : {false, true}) {
    FusedMoeSpec spec = small_spec(GetParam());
    spec.bias = bias;
    const auto source = std::move(make_random_weights(spec, DataKind::kRealistic, 3)).value();
    Tensors held;
    const auto weights = std::move(weights_from_pointers(spec, [&](int64_t expert) {
                           held = source->chunk(expert).value();
                           return Result<ExpertPointers>(pointers_to(spec, held));
                         })).value();
    EXPECT_EQ(weights->chunks(), spec.experts);
    for (const int64_t expert : {0, 11, 5}) {
      const Tensors chunk = weights->chunk(expert).value();
      ASSERT_EQ(chunk.size(), held.size());
      for (size_t i = 0; i < chunk.size(); ++i) {
        EXPECT_EQ(chunk[i].shape, held[i].shape);
        EXPECT_EQ(std::memcmp(chunk[i].data, held[i].data, held[i].bytes()), 0) << held[i].name;
      }
      EXPECT_EQ(find(chunk, "w13")->data, find(held, "w13")->data) << "not copied";
      EXPECT_TRUE(view_expert(spec, chunk).ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PointerWeights, testing::ValuesIn(kWeightFormats),
                         [](const auto& format) {
                           std::string name = to_string(format.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST(PointerWeightsLayout, StridesTakeASliceOrATransposedMatrix) {
  const FusedMoeSpec spec = {
      .hidden = 3, .intermediate = 2, .experts = 1, .global_experts = 1, .top_k = 1};
  // Gate [column][row], of which up is the second half of each column; down in rows of five.
  const std::vector<uint16_t> columns = {1, 2, 11, 12, 3, 4, 13, 14, 5, 6, 15, 16};
  const std::vector<uint16_t> rows = {9, 21, 22, 9, 9, 9, 23, 24, 9, 9, 9, 25, 26, 9, 9};
  ExpertPointers at;
  at.gate = {.data = columns.data(), .row_stride = 2, .column_stride = 8};
  at.up = {.data = columns.data() + 2, .row_stride = 2, .column_stride = 8};
  at.down = {.data = rows.data() + 1, .row_stride = 10};
  const auto weights = std::move(weights_from_pointers(spec, [&](int64_t) {
                         return Result<ExpertPointers>(at);
                       })).value();
  const Tensors chunk = weights->chunk(0).value();
  const auto* w13 = find(chunk, "w13")->as<uint16_t>();
  EXPECT_EQ(std::vector<uint16_t>(w13, w13 + 12),
            (std::vector<uint16_t>{1, 3, 5, 2, 4, 6, 11, 13, 15, 12, 14, 16}));
  const auto* w2 = find(chunk, "w2")->as<uint16_t>();
  EXPECT_EQ(std::vector<uint16_t>(w2, w2 + 6), (std::vector<uint16_t>{21, 22, 23, 24, 25, 26}));
}

TEST(PointerWeightsLayout, WithoutAGateOnlyUpIsLookedAt) {
  FusedMoeSpec spec = small_spec(WeightFormat::kFp8);
  spec.activation = Activation::kRelu2;
  const auto source = std::move(make_random_weights(spec, DataKind::kRealistic, 3)).value();
  Tensors held;
  const auto weights = std::move(weights_from_pointers(spec, [&](int64_t expert) {
                         held = source->chunk(expert).value();
                         ExpertPointers at = pointers_to(spec, held);
                         at.gate = {};
                         at.gate_global = -1;
                         return Result<ExpertPointers>(at);
                       })).value();
  const auto chunk = weights->chunk(1);
  ASSERT_TRUE(chunk.ok()) << chunk.error().message;
  EXPECT_EQ(find(*chunk, "w13_global")->as<float>()[1], find(held, "w13_global")->as<float>()[1]);
}

TEST(PointerWeightsLayout, ARankWithoutDownsBiasAddsZeros) {
  FusedMoeSpec spec = small_spec();
  spec.bias = true;
  const auto source = std::move(make_random_weights(spec, DataKind::kRealistic, 3)).value();
  Tensors held;
  const auto weights = std::move(weights_from_pointers(spec, [&](int64_t expert) {
                         held = source->chunk(expert).value();
                         ExpertPointers at = pointers_to(spec, held);
                         at.down_bias = nullptr;
                         return Result<ExpertPointers>(at);
                       })).value();
  const Tensors chunk = weights->chunk(1).value();
  const auto* bias = find(chunk, "w2_bias")->as<float>();
  EXPECT_THAT(std::vector<float>(bias, bias + spec.hidden), testing::Each(0.0f));
}

TEST(PointerWeightsRefused, WhatIsMissingOrMakesNoSenseIsNamed) {
  FusedMoeSpec spec = small_spec(WeightFormat::kNvfp4);
  spec.bias = true;
  const auto source = std::move(make_random_weights(spec, DataKind::kRealistic, 3)).value();
  Tensors held = source->chunk(2).value();
  std::vector<float> bad_bias(static_cast<size_t>(spec.hidden),
                              std::numeric_limits<float>::infinity());
  const auto message = [&](auto change) {
    ExpertPointers at = pointers_to(spec, held);
    change(at);
    const auto weights = std::move(weights_from_pointers(spec, [&](int64_t) {
                           return Result<ExpertPointers>(at);
                         })).value();
    const auto chunk = weights->chunk(2);
    EXPECT_FALSE(chunk.ok());
    return chunk.ok() ? std::string() : chunk.error().message;
  };
  EXPECT_EQ(message([](auto& at) { at.up = {}; }), "expert 2: up is missing");
  EXPECT_EQ(message([](auto& at) { at.down_scales = {}; }), "expert 2: down_scales is missing");
  EXPECT_EQ(message([](auto& at) { at.gate_bias = nullptr; }), "expert 2: gate_bias is missing");
  EXPECT_EQ(message([](auto& at) { at.up_global = NAN; }), "expert 2: up_global is NaN");
  EXPECT_EQ(message([&](auto& at) { at.down_bias = bad_bias.data(); }),
            "expert 2: down_bias [0] is NaN or infinite");
  find(held, "w2_scales")->as<uint8_t>()[7] = 0x7F;
  EXPECT_EQ(message([](auto&) {}), "expert 2: down_scales [2, 1] is NaN");
}

TEST(PointerWeightsRefused, ErrorsOfTheFunctionArePassedOn) {
  const auto weights =
      std::move(weights_from_pointers(small_spec(), [](int64_t expert) {
        return Result<ExpertPointers>(Error{ErrorCode::kIo, "lost " + std::to_string(expert)});
      })).value();
  EXPECT_EQ(weights->chunk(4).error().message, "lost 4");
  EXPECT_FALSE(weights->chunk(12).ok());
  EXPECT_FALSE(weights_from_pointers(small_spec(), nullptr).ok());
  EXPECT_FALSE(weights_from_pointers({}, [](int64_t) -> Result<ExpertPointers> {
                 return ExpertPointers{};
               }).ok());
}

}  // namespace
}  // namespace moetune

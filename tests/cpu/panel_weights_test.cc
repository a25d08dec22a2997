#include "cpu/panel_weights.h"

#include <gtest/gtest.h>

#include "cpu/layer_case.h"

namespace moetune::cpu {
namespace {

struct UnpackedExpert {
  explicit UnpackedExpert(const RawExpert& like) : expert(like) {
    for (RawMatrix* matrix : {&expert.gate, &expert.up, &expert.down}) {
      std::fill(matrix->values.begin(), matrix->values.end(), uint8_t{0xEE});
      std::fill(matrix->scales.begin(), matrix->scales.end(), uint8_t{0xEE});
    }
  }
  MutableExpertWeights view() {
    return {expert.gate.values.data(), expert.up.values.data(), expert.down.values.data(),
            expert.gate.scales.data(), expert.up.scales.data(), expert.down.scales.data()};
  }
  RawExpert expert;
};

void expect_round_trip(const FusedMoeSpec& spec) {
  LayerCase layer(spec, 1, Values::kClose,
                  static_cast<uint32_t>(spec.hidden + 1000 * spec.intermediate));
  const PanelWeights& packed = layer.packed();
  for (size_t e = 0; e < layer.experts().size(); ++e) {
    const RawExpert& original = layer.experts()[e];
    UnpackedExpert unpacked(original);
    packed.unpack(static_cast<int64_t>(e), unpacked.view());
    const auto expect_equal = [&](const RawMatrix& a, const RawMatrix& b, const char* what) {
      EXPECT_EQ(a.values, b.values) << what << " of " << spec.hidden << " x " << spec.intermediate;
      EXPECT_EQ(a.scales, b.scales)
          << what << " scales of " << spec.hidden << " x " << spec.intermediate;
    };
    if (spec.gated()) expect_equal(unpacked.expert.gate, original.gate, "gate");
    expect_equal(unpacked.expert.up, original.up, "up");
    expect_equal(unpacked.expert.down, original.down, "down");
  }
}

TEST(PanelWeights, UnpackingGivesBackEveryBit) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kNvfp4})
    for (const Activation activation : {Activation::kSwiGlu, Activation::kRelu2}) {
      for (int64_t size = 1; size <= 70; size += 3)
        expect_round_trip(small_spec(size, 71 - size, 2, 1, format, activation));
      expect_round_trip(small_spec(2880, 96, 2, 1, format, activation));
      expect_round_trip(small_spec(176, 1408, 2, 1, format, activation));
    }
}

TEST(PanelWeights, AddNoBytesWhereSizesAreWholePanelsAndGroups) {
  FusedMoeSpec spec = small_spec(2048, 768, 4, 2, WeightFormat::kNvfp4, Activation::kSwiGlu);
  const int64_t global_scales = 3 * sizeof(float);  // Kept beside the stream.
  EXPECT_EQ(PanelWeights::bytes(spec), 4 * (expert_weight_bytes(spec) - global_scales));
  spec.weights = WeightFormat::kBf16;
  EXPECT_EQ(PanelWeights::bytes(spec), 4 * expert_weight_bytes(spec));
}

TEST(PanelWeights, RefuseScalesThatNoQuantiserWrites) {
  LayerCase layer(small_spec(64, 48, 1, 1, WeightFormat::kNvfp4, Activation::kSwiGlu), 1,
                  Values::kClose, 3);
  PanelWeights packed = PanelWeights::allocate(layer.spec()).value();
  for (const uint8_t scale : {0x7F, 0x80, 0xFF}) {
    RawExpert expert = layer.experts()[0];
    expert.down.scales.back() = scale;
    const Status status = packed.pack(0, expert.view());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(PanelWeights, SayWhichFormatsTheyHave) {
  FusedMoeSpec spec = small_spec(64, 48, 1, 1, WeightFormat::kMxfp4, Activation::kSwiGlu);
  const Result<PanelWeights> packed = PanelWeights::allocate(spec);
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(packed.error().message.find("mxfp4"), std::string::npos);
}

}  // namespace
}  // namespace moetune::cpu

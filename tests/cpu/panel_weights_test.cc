#include "cpu/panel_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cpu/layer_case.h"
#include "ops/moe/format.h"

namespace moetune::cpu {
namespace {

// An expert's tensors in memory that begins as 0xEE.
struct OwnedExpert {
  explicit OwnedExpert(const FusedMoeSpec& spec) : tensors(expert_tensors(spec)) {
    for (Tensor& tensor : tensors)
      tensor.data = storage.emplace_back(tensor.bytes() / 4 + 1, 0xEEEEEEEEu).data();
  }
  Tensors tensors;
  std::vector<std::vector<uint32_t>> storage;
};

void expect_round_trip(const FusedMoeSpec& spec) {
  const auto seed = static_cast<uint64_t>(spec.hidden + 1000 * spec.intermediate);
  const auto source = make_random_weights(spec, DataKind::kRealistic, seed).value();
  const PanelWeights packed = pack_all(spec, *source);
  for (int64_t e = 0; e < spec.experts; ++e) {
    const Tensors original = source->chunk(e).value();
    const OwnedExpert unpacked(spec);
    packed.unpack(e, unpacked.tensors);
    for (size_t i = 0; i < original.size(); ++i)
      EXPECT_EQ(std::memcmp(original[i].data, unpacked.tensors[i].data, original[i].bytes()), 0)
          << original[i].name << " of " << to_string(spec.weights) << ", " << spec.hidden << " x "
          << spec.intermediate;
  }
}

TEST(PanelWeights, UnpackingGivesBackEveryBit) {
  for (const WeightFormat format : kEveryFormat)
    for (const Activation activation : {Activation::kSwiGlu, Activation::kRelu2}) {
      const int64_t unit = bits_per_value(format_parts(format).values) == 4 ? 2 : 1;
      for (int64_t size = 1; size <= 70; size += 3)
        expect_round_trip(small_spec(unit * size, unit * (71 - size), 2, 1, format, activation));
      expect_round_trip(with_bias(small_spec(2880, 96, 2, 1, format, activation)));
      expect_round_trip(with_bias(small_spec(176, 1408, 2, 1, format, activation)));
      expect_round_trip(with_bias(small_spec(300, 150, 2, 1, format, activation)));
    }
}

TEST(PanelWeights, AddHardlyAByteWhereSizesAreWholePanelsAndGroups) {
  for (const WeightFormat format : kEveryFormat) {
    const FusedMoeSpec spec = small_spec(2048, 768, 4, 2, format, Activation::kSwiGlu);
    const int64_t values = 3 * spec.hidden * spec.intermediate;
    int64_t bytes = 4 * expert_weight_bytes(spec);
    switch (format) {
      case WeightFormat::kNvfp4:
      case WeightFormat::kFp8:  // Kept beside the stream.
        bytes -= 4 * 3 * static_cast<int64_t>(sizeof(float));
        break;
      case WeightFormat::kFp8Block:
        bytes -= 4 * values / (128 * 128) * static_cast<int64_t>(sizeof(float));
        break;
      default: break;
    }
    const bool headers = format == WeightFormat::kFp8 || format == WeightFormat::kFp8Block;
    EXPECT_EQ(PanelWeights::bytes(spec), headers ? bytes + bytes / 64 : bytes) << to_string(format);
  }
}

// Of one expert of which the last byte of a tensor is `byte`.
Status pack_with(WeightFormat format, const char* tensor, uint8_t byte) {
  const FusedMoeSpec spec = small_spec(64, 48, 1, 1, format, Activation::kSwiGlu);
  const auto source = make_random_weights(spec, DataKind::kRealistic, 3).value();
  const Tensors chunk = source->chunk(0).value();
  find(chunk, tensor)->as<uint8_t>()[find(chunk, tensor)->bytes() - 1] = byte;
  ThreadPool pool({-1});
  return PanelWeights::allocate(spec).value().pack(0, chunk, pool);
}

TEST(PanelWeights, RefuseWhatNoQuantiserWrites) {
  struct Damage {
    WeightFormat format;
    const char* tensor;
    std::vector<uint8_t> refused;
    std::vector<uint8_t> taken;
  };
  for (const auto& [format, tensor, refused, taken] : std::vector<Damage>{
           {WeightFormat::kNvfp4, "w2_scales", {0x7F, 0x80, 0xFF}, {0x00, 0x7E}},
           {WeightFormat::kMxfp4, "w13_scales", {0xFF}, {0x00, 0x7F, 0x80, 0xFE}},
           {WeightFormat::kFp8, "w2", {0x7F, 0xFF}, {0x00, 0x7E, 0x80, 0xFE}},
           {WeightFormat::kFp8Block, "w13", {0x7F, 0xFF}, {0x00, 0x7E, 0x80, 0xFE}}}) {
    for (const uint8_t byte : refused) {
      const Status status = pack_with(format, tensor, byte);
      ASSERT_FALSE(status.ok()) << to_string(format) << " " << int{byte};
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(status.error().message.find("fp"), std::string::npos) << status.error().message;
    }
    for (const uint8_t byte : taken)
      EXPECT_TRUE(pack_with(format, tensor, byte).ok()) << to_string(format) << " " << int{byte};
  }
}

TEST(PanelWeights, NameATensorThatIsMissing) {
  const FusedMoeSpec spec =
      with_bias(small_spec(64, 48, 1, 1, WeightFormat::kMxfp4, Activation::kSwiGlu));
  const auto source = make_random_weights(spec, DataKind::kRealistic, 3).value();
  Tensors chunk = source->chunk(0).value();
  chunk.pop_back();
  ThreadPool pool({-1, -1});
  const Status status = PanelWeights::allocate(spec).value().pack(0, chunk, pool);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("w2_bias"), std::string::npos);
}

}  // namespace
}  // namespace moetune::cpu

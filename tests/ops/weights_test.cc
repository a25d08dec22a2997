#include "ops/moe/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "ops/moe_testing.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;
using testing_moe::kWeightFormats;
using testing_moe::ListedWeights;
using testing_moe::plain_weights;
using testing_moe::small_spec;

// Every byte of a chunk, one tensor after the other.
std::vector<uint8_t> bytes_of(const Tensors& chunk) {
  std::vector<uint8_t> bytes;
  for (const Tensor& tensor : chunk) {
    const auto* data = tensor.as<const uint8_t>();
    bytes.insert(bytes.end(), data, data + tensor.bytes());
  }
  return bytes;
}

std::unique_ptr<WeightSource> weights_of(const FusedMoeSpec& spec, DataKind kind,
                                         uint64_t seed = 1) {
  return make_random_weights(spec, kind, seed).value();
}

std::vector<FusedMoeSpec> specs() {
  std::vector<FusedMoeSpec> result;
  for (WeightFormat format : kWeightFormats) {
    for (Activation activation : {Activation::kSwiGlu, Activation::kRelu2}) {
      FusedMoeSpec spec = small_spec(format);
      spec.activation = activation;
      spec.bias = activation == Activation::kSwiGlu;
      result.push_back(spec);
    }
  }
  return result;
}

TEST(RandomWeights, FollowFromTheirArgumentsAlone) {
  for (const FusedMoeSpec& spec : specs()) {
    for (DataKind kind : {DataKind::kRealistic, DataKind::kExact}) {
      const auto in_order = weights_of(spec, kind);
      const auto out_of_order = weights_of(spec, kind);
      std::vector<std::vector<uint8_t>> chunks;
      for (int64_t e = 0; e < spec.experts; ++e)
        chunks.push_back(bytes_of(in_order->chunk(e).value()));
      for (int64_t e = spec.experts - 1; e >= 0; --e) {
        EXPECT_EQ(bytes_of(out_of_order->chunk(e).value()), chunks[static_cast<size_t>(e)]);
      }
      EXPECT_NE(chunks[0], chunks[1]);
      EXPECT_NE(bytes_of(weights_of(spec, kind, 2)->chunk(0).value()), chunks[0]);
    }
  }
}

TEST(RandomWeights, ChunksFitTheSpecification) {
  for (const FusedMoeSpec& spec : specs()) {
    const auto source = weights_of(spec, DataKind::kRealistic);
    EXPECT_EQ(source->chunks(), spec.experts);
    const Tensors chunk = source->chunk(0).value();
    EXPECT_TRUE(view_expert(spec, chunk).ok());
    int64_t weight_bytes = 0;
    for (const Tensor& tensor : chunk) {
      if (!tensor.name.ends_with("_bias")) weight_bytes += static_cast<int64_t>(tensor.bytes());
    }
    const bool unused_global = find(chunk, "w13_global") != nullptr;
    EXPECT_EQ(weight_bytes, expert_weight_bytes(spec) + (unused_global && !spec.gated() ? 4 : 0));
  }
}

TEST(RandomWeights, ExpertsOutOfRangeAreRefused) {
  const auto source = weights_of(small_spec(), DataKind::kRealistic);
  EXPECT_EQ(source->chunk(-1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(source->chunk(12).error().code, ErrorCode::kInvalidArgument);
}

TEST(RandomWeights, AnInvalidSpecificationIsRefused) {
  FusedMoeSpec bad = small_spec();
  bad.hidden = 0;
  EXPECT_EQ(make_random_weights(bad, DataKind::kExact, 1).error().code,
            ErrorCode::kInvalidArgument);
}

double rms(const std::vector<float>& values) {
  double sum = 0;
  for (float value : values) sum += double{value} * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(RandomWeights, RealisticOnesHaveTheSameSizeInEveryFormat) {
  for (WeightFormat format : kWeightFormats) {
    FusedMoeSpec spec = small_spec(format);
    spec.hidden = 512;
    spec.intermediate = 256;
    const ListedWeights::Expert expert =
        plain_weights(spec, *weights_of(spec, DataKind::kRealistic), 3);
    // Where there are global scales, up's is larger than gate's.
    const bool global = format == WeightFormat::kNvfp4 || format == WeightFormat::kFp8;
    // Few blocks of 128 x 128, each of a size of its own, make these vary.
    const double tolerance = format == WeightFormat::kFp8Block ? 0.2 : 0.05;
    EXPECT_NEAR(rms(expert.w13) * std::sqrt(512), global ? 1.13 : 1.0, tolerance)
        << to_string(format);
    EXPECT_NEAR(rms(expert.w2) * std::sqrt(256), 1.7, tolerance) << to_string(format);
  }
}

TEST(RandomWeights, Nvfp4UsesEveryCodeAndEveryKindOfScale) {
  FusedMoeSpec spec = small_spec(WeightFormat::kNvfp4);
  spec.hidden = 512;
  spec.intermediate = 256;
  for (DataKind kind : {DataKind::kRealistic, DataKind::kExact}) {
    const auto source = weights_of(spec, kind);
    std::set<uint8_t> codes, scales;
    for (int64_t e = 0; e < spec.experts; ++e) {
      const Tensors chunk = source->chunk(e).value();
      for (size_t i = 0; i < chunk[0].bytes(); ++i) {
        codes.insert(chunk[0].as<uint8_t>()[i] & 15);
        codes.insert(chunk[0].as<uint8_t>()[i] >> 4);
      }
      scales.insert(chunk[1].as<uint8_t>(), chunk[1].as<uint8_t>() + chunk[1].bytes());
      EXPECT_NE(chunk[2].as<float>()[0], chunk[2].as<float>()[1])
          << "gate and up have global scales of their own";
    }
    EXPECT_EQ(codes.size(), 16u);
    EXPECT_LT(*scales.begin(), 8) << "no subnormal scale";
    EXPECT_GE(*scales.rbegin(), 0x78) << "no large scale";
    EXPECT_LE(*scales.rbegin(), 0x7E) << "negative or NaN scale";
  }
}

TEST(RandomWeights, Fp8UsesSubnormalsAndLargeValues) {
  for (WeightFormat format : {WeightFormat::kFp8, WeightFormat::kFp8Block}) {
    FusedMoeSpec spec = small_spec(format);
    spec.hidden = 512;
    spec.intermediate = 256;
    const auto source = weights_of(spec, DataKind::kExact);
    std::set<uint8_t> codes;
    std::set<float> scales;
    for (int64_t e = 0; e < spec.experts; ++e) {
      const Tensors chunk = source->chunk(e).value();
      for (const Tensor& tensor : chunk) {
        if (tensor.type == DataType::kF8E4M3) {
          codes.insert(tensor.as<uint8_t>(), tensor.as<uint8_t>() + tensor.bytes());
        } else {
          scales.insert(tensor.as<float>(), tensor.as<float>() + tensor.values());
        }
      }
    }
    EXPECT_TRUE(codes.contains(0x01)) << "no subnormal";
    EXPECT_TRUE(codes.contains(0x7C)) << "not 384";
    EXPECT_GT(scales.size(), 8u);
  }
}

TEST(RandomWeights, Mxfp4UsesEveryCodeAndManyScales) {
  const FusedMoeSpec spec = small_spec(WeightFormat::kMxfp4);
  const auto source = weights_of(spec, DataKind::kExact);
  std::set<uint8_t> scales;
  for (int64_t e = 0; e < spec.experts; ++e) {
    const Tensors chunk = source->chunk(e).value();
    scales.insert(chunk[1].as<uint8_t>(), chunk[1].as<uint8_t>() + chunk[1].bytes());
  }
  EXPECT_LT(*scales.begin(), 127 - 8);
  EXPECT_GT(*scales.rbegin(), 127 + 8);
}

// What makes the exact check exact: whatever the order, no partial sum of a GEMM leaves the 24 bits
// of f32. The largest sum possible, of all magnitudes, is compared with 2^24 units, a unit being
// the smallest difference that the terms can have.
void expect_exact_sums(const std::vector<float>& weights, const std::vector<float>& x, size_t rows,
                       double unit) {
  double largest = 0;
  for (size_t row = 0; row < rows; ++row) {
    double magnitudes = 0;
    for (size_t i = 0; i < x.size(); ++i)
      magnitudes += std::abs(double{weights[row * x.size() + i]} * x[i]);
    largest = std::max(largest, magnitudes);
  }
  EXPECT_LT(largest / unit, 0x1p24);
}

TEST(RandomWeights, ExactOnesKeepEverySumInside24Bits) {
  for (WeightFormat format : kWeightFormats) {
    for (Activation activation : {Activation::kSwiGlu, Activation::kRelu2}) {
      FusedMoeSpec spec{.hidden = 3072,
                        .intermediate = 2048,
                        .experts = 2,
                        .global_experts = 2,
                        .top_k = 1,
                        .weights = format};
      spec.activation = activation;
      spec = exact_variant(spec);
      const ListedWeights::Expert w = plain_weights(spec, *weights_of(spec, DataKind::kExact), 1);
      SCOPED_TRACE(to_string(format));
      // The smallest weight that is not zero, and the unit of which all are multiples.
      const auto unit_of = [](const std::vector<float>& weights) {
        double unit = 1e30;
        for (float x : weights) unit = x == 0 ? unit : std::min(unit, std::abs(double{x}));
        return unit;
      };
      const double weight_unit = unit_of(w.w13);
      const std::vector<float> x(
          3072, 1.0f);  // The size of exact hidden states; signs cannot make a sum larger.
      expect_exact_sums(w.w13, x, static_cast<size_t>(spec.w13_rows()), weight_unit);

      std::vector<float> h(2048);
      size_t exact_in_bf16 = 0;
      for (size_t i = 0; i < h.size(); ++i) {
        double sums[2] = {};
        for (size_t j = 0; j < x.size(); ++j) {
          const float sign = (j * 7 + i) % 5 < 2 ? -1.0f : 1.0f;
          sums[0] += sign * w.w13[i * x.size() + j];
          if (spec.gated()) sums[1] += sign * w.w13[(i + h.size()) * x.size() + j];
        }
        const double value = spec.gated() ? sums[0] + sums[1] : std::pow(std::max(sums[0], 0.0), 2);
        EXPECT_EQ(static_cast<float>(value), value);
        h[i] = round_to_bf16(static_cast<float>(value));
        exact_in_bf16 += h[i] == value ? 1 : 0;
      }
      const double h_unit = spec.gated() ? weight_unit : weight_unit * weight_unit;
      expect_exact_sums(w.w2, h, 3072, h_unit * unit_of(w.w2));
      if (spec.gated()) {
        EXPECT_GT(exact_in_bf16, h.size() * 95 / 100);
      }
    }
  }
}

TEST(ViewExpert, WhatDoesNotFitIsNamed) {
  const FusedMoeSpec spec = small_spec(WeightFormat::kNvfp4);
  const auto source = weights_of(spec, DataKind::kRealistic);
  const Tensors chunk = source->chunk(0).value();
  for (size_t i = 0; i < chunk.size(); ++i) {
    Tensors missing = chunk;
    missing.erase(missing.begin() + static_cast<int64_t>(i));
    EXPECT_THAT(view_expert(spec, missing).error().message, HasSubstr("'" + chunk[i].name + "'"));
    Tensors wrong_shape = chunk;
    wrong_shape[i].shape.back() += 1;
    EXPECT_THAT(view_expert(spec, wrong_shape).error().message,
                HasSubstr("'" + chunk[i].name + "'"));
    Tensors wrong_type = chunk;
    wrong_type[i].type = DataType::kI32;
    EXPECT_THAT(view_expert(spec, wrong_type).error().message, HasSubstr("i32"));
  }
  EXPECT_FALSE(view_expert(small_spec(), chunk).ok());
}

}  // namespace
}  // namespace moetune

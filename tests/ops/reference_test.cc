#include "ops/moe/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/moe_testing.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_moe::all_tokens;
using testing_moe::ListedWeights;
using testing_moe::plain_weights;
using testing_moe::run_kernel;
using testing_moe::small_spec;
using testing_moe::to_bf16;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Two experts of one gate, one up and one down weight: everything can be worked out by hand. Expert
// 1 doubles what expert 0 gives.
struct Tiny {
  explicit Tiny(Activation activation = Activation::kGatePlusUp) {
    spec = {.hidden = 1, .intermediate = 1, .experts = 2, .global_experts = 2, .top_k = 2};
    spec.activation = activation;
    spec.given_routing = true;
    spec.output = DataType::kF32;
    inputs.hidden = to_bf16({2});
    inputs.routing = {.tokens = 1, .ids = {0, -1}, .weights = {1, 1}};
  }

  Result<std::vector<float>> row(int64_t token = 0) {
    std::vector<ListedWeights::Expert> experts;
    for (float down : {1.0f, 2.0f}) {
      experts.push_back(
          {.w13 = {gate, up}, .w2 = {down}, .w13_bias = {0.5f, 0.25f}, .w2_bias = {10}});
      if (!spec.gated()) experts.back().w13 = {up};
      if (!spec.gated()) experts.back().w13_bias = {0.25f};
    }
    ListedWeights source(spec, experts);
    return reference_row(spec, source, call_arguments(spec, inputs, nullptr), token);
  }

  FusedMoeSpec spec;
  MoeInputs inputs;
  float gate = 0.5f;
  float up = 3;
};

// h is a bf16: what the activation gives is compared through that.
float h_of(double value) { return round_to_bf16(static_cast<float>(value)); }

TEST(Reference, GatePlusUp) { EXPECT_THAT(Tiny().row().value(), ElementsAre(7)); }

TEST(Reference, SwiGlu) {
  EXPECT_THAT(Tiny(Activation::kSwiGlu).row().value(), ElementsAre(h_of(1 * sigmoid(1) * 6)));
}

TEST(Reference, GptOssActivationInsideItsLimits) {
  EXPECT_THAT(Tiny(Activation::kSwiGluClamped).row().value(),
              ElementsAre(h_of(1 * sigmoid(1.702) * (6 + 1))));
}

TEST(Reference, GptOssActivationClampsGateFromAboveAndUpOnBothSides) {
  Tiny tiny(Activation::kSwiGluClamped);
  tiny.gate = 20;
  tiny.up = 20;
  EXPECT_THAT(tiny.row().value(), ElementsAre(h_of(7 * sigmoid(1.702 * 7) * 8)));
  tiny.up = -20;
  EXPECT_THAT(tiny.row().value(), ElementsAre(h_of(7 * sigmoid(1.702 * 7) * -6)));
  tiny.gate = -10;  // Not clamped from below: -20 · sigmoid(-34) · -6 is tiny, -7 · sigmoid(-12) ·
                    // -6 would be 3e-4.
  EXPECT_THAT(tiny.row().value(), ElementsAre(::testing::FloatNear(0, 1e-10f)));
}

TEST(Reference, Relu2HasNoGate) {
  Tiny tiny(Activation::kRelu2);
  EXPECT_THAT(tiny.row().value(), ElementsAre(36));
  tiny.up = -3;
  EXPECT_THAT(tiny.row().value(), ElementsAre(0));
}

TEST(Reference, BiasesAreAddedBeforeTheActivationAndBeforeTheExpertsWeight) {
  Tiny tiny;
  tiny.spec.bias = true;
  tiny.inputs.routing.weights = {0.5f, 1};
  EXPECT_THAT(tiny.row().value(), ElementsAre(0.5f * ((1 + 0.5f) + (6 + 0.25f) + 10)));
  tiny.spec.activation = Activation::kRelu2;
  EXPECT_THAT(tiny.row().value(), ElementsAre(0.5f * (39 + 10)));  // 6.25² = 39.0625 is 39 in bf16.
}

TEST(Reference, RepeatedIdsAddUpAndMinusOneIsSkipped) {
  Tiny tiny;
  tiny.inputs.routing.ids = {1, 1};
  tiny.inputs.routing.weights = {0.5f, 2};
  EXPECT_THAT(tiny.row().value(), ElementsAre(2.5f * 14));
  tiny.inputs.routing.ids = {-1, 1};
  EXPECT_THAT(tiny.row().value(), ElementsAre(2 * 14));
  tiny.inputs.routing.ids = {-1, -1};
  EXPECT_THAT(tiny.row().value(), ElementsAre(0));
}

TEST(Reference, OtherRanksExpertsAreSkipped) {
  Tiny tiny;
  tiny.spec.global_experts = 6;
  tiny.spec.ep = 3;
  tiny.inputs.first_expert = 2;
  tiny.inputs.routing.ids = {3, 1};
  EXPECT_THAT(tiny.row().value(), ElementsAre(14));
  tiny.inputs.routing.ids = {4, 2};
  EXPECT_THAT(tiny.row().value(), ElementsAre(7));
  tiny.inputs.routing.ids = {0, 5};
  EXPECT_THAT(tiny.row().value(), ElementsAre(0));
}

TEST(Reference, HIsRoundedToBf16) {
  Tiny tiny;
  tiny.gate = 128;
  tiny.up = 3.5f;  // gate + up = 256 + 7 = 263, which needs nine bits: 264 is the even neighbour.
  EXPECT_THAT(tiny.row().value(), ElementsAre(264));
}

// And by however many threads weights and products are made.
TEST(Reference, SeveralRoundingsAtOnceAreWhatEachIsByItself) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8Block}) {
    FusedMoeSpec spec;
    spec.hidden = 640;
    spec.intermediate = 256;
    spec.experts = spec.global_experts = 4;
    spec.top_k = 2;
    spec.weights = format;
    if (format == WeightFormat::kFp8Block) spec.activations = ActivationFormat::kFp8Block;
    MoeInputs inputs =
        make_inputs(spec, parse_workload("uniform").value(), 3, DataKind::kRealistic, 1, 0).value();
    const Tensors arguments = call_arguments(spec, inputs, nullptr);
    const std::vector<int64_t> tokens = {2, 0};
    const Rounding all[] = {Rounding::kDefinition, Rounding::kGateUp, Rounding::kGateUpActivated};
    const auto several_threads = make_random_weights(spec, DataKind::kRealistic, 5, 3).value();
    const auto one_thread = make_random_weights(spec, DataKind::kRealistic, 5).value();
    const auto together =
        reference_rows(spec, *several_threads, arguments, tokens, 3, std::span(all)).value();
    ASSERT_EQ(together.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const ReferenceRows alone =
          reference_rows(spec, *one_thread, arguments, tokens, 1, all[i]).value();
      EXPECT_EQ(together[i].tokens, alone.tokens);
      EXPECT_EQ(together[i].values, alone.values) << i;
    }
    EXPECT_NE(together[0].values, together[1].values);
    EXPECT_NE(together[1].values, together[2].values);
  }
}

TEST(Reference, TokensOutOfRangeAreRefused) {
  EXPECT_THAT(Tiny().row(1).error().message, HasSubstr("token 1, but there are 1 tokens"));
  EXPECT_EQ(Tiny().row(-1).error().code, ErrorCode::kInvalidArgument);
}

TEST(Reference, ArgumentsThatDoNotFitAreNamed) {
  Tiny tiny;
  ListedWeights source(tiny.spec, {{.w13 = {1, 1}, .w2 = {1}}, {.w13 = {1, 1}, .w2 = {1}}});
  const Tensors arguments = call_arguments(tiny.spec, tiny.inputs, nullptr);
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    Tensors wrong = arguments;
    wrong[i].shape.back() = 5;
    EXPECT_THAT(reference_row(tiny.spec, source, wrong, 0).error().message,
                HasSubstr("'" + wrong[i].name + "'"));
    wrong = arguments;
    wrong[i].data = nullptr;
    EXPECT_THAT(reference_row(tiny.spec, source, wrong, 0).error().message, HasSubstr("no data"));
  }
  EXPECT_THAT(reference_row(tiny.spec, source, {}, 0).error().message,
              HasSubstr("'hidden' is missing"));
}

TEST(Reference, ScalesOfActivationsAreTwoPositiveNumbers) {
  FusedMoeSpec spec = small_spec(WeightFormat::kFp8);
  spec.activations = ActivationFormat::kFp8;
  const auto source = make_random_weights(spec, DataKind::kRealistic, 3).value();
  MoeInputs inputs =
      make_inputs(spec, parse_workload("uniform").value(), 1, DataKind::kRealistic, 3, 0).value();
  Tensors arguments = call_arguments(spec, inputs, nullptr);
  EXPECT_TRUE(reference_row(spec, *source, arguments, 0).ok());
  for (const float bad : {0.0f, -1.0f, INFINITY, NAN}) {
    inputs.activation_scales[1] = bad;
    EXPECT_THAT(reference_row(spec, *source, arguments, 0).error().message,
                HasSubstr("both positive"));
  }
  std::erase_if(arguments, [](const Tensor& one) { return one.name == "activation_scales"; });
  EXPECT_THAT(reference_row(spec, *source, arguments, 0).error().message,
              HasSubstr("'activation_scales' is missing"));
}

// ---- Against a kernel that shares nothing with the reference but the definition ----

Workload uniform() { return parse_workload("uniform").value(); }

std::vector<FusedMoeSpec> variety() {
  std::vector<FusedMoeSpec> specs;
  for (WeightFormat format : testing_moe::kWeightFormats) {
    for (int i = 0; i < 4; ++i) {
      FusedMoeSpec spec = small_spec(format);
      spec.activation = static_cast<Activation>(i);
      spec.bias = i % 2 == 0;
      spec.router.score = static_cast<Score>(i % 3);
      spec.router.renormalise = i % 2 == 1;
      spec.router.selection_bias = i >= 2;
      spec.router.groups = i == 3 ? 3 : 1;
      spec.router.top_groups = i == 3 ? 2 : 1;
      spec.router.scale = 2.5f;
      spec.shared_experts = i == 1 ? 2 : 0;
      specs.push_back(spec);
    }
    if (format == WeightFormat::kFp8Block) {
      FusedMoeSpec spec = small_spec(format);
      spec.hidden = 300;
      spec.intermediate = 150;
      spec.activations = ActivationFormat::kFp8Block;
      specs.push_back(spec);
    }
    if (format == WeightFormat::kFp8) {
      specs.push_back(small_spec(format));
      specs.back().activations = ActivationFormat::kFp8;
    }
    for (int64_t size : {2, 18, 34}) {  // Short last blocks, and rows shorter than a block.
      FusedMoeSpec spec = small_spec(format);
      spec.hidden = size;
      spec.intermediate = size + 4;
      specs.push_back(spec);
    }
  }
  return specs;
}

TEST(Reference, AgreesWithAPlainKernelOnExactNumbersToTheBit) {
  for (FusedMoeSpec spec : variety()) {
    spec = exact_variant(spec);
    const auto source = make_random_weights(spec, DataKind::kExact, 3).value();
    MoeInputs inputs = make_inputs(spec, uniform(), 9, DataKind::kExact, 3, 0).value();
    const std::vector<float> kernel = run_kernel(spec, *source, inputs);
    const ReferenceRows rows =
        reference_rows(spec, *source, call_arguments(spec, inputs, nullptr), all_tokens(inputs))
            .value();
    EXPECT_EQ(rows.values, kernel)
        << to_string(spec.weights) << " " << to_string(spec.activation) << " " << spec.hidden;
  }
}

TEST(Reference, AgreesWithAPlainKernelOnRealisticNumbers) {
  for (const FusedMoeSpec& spec : variety()) {
    const auto source = make_random_weights(spec, DataKind::kRealistic, 3).value();
    MoeInputs inputs = make_inputs(spec, uniform(), 9, DataKind::kRealistic, 3, 0).value();
    const std::vector<float> kernel = run_kernel(spec, *source, inputs);
    const ReferenceRows rows =
        reference_rows(spec, *source, call_arguments(spec, inputs, nullptr), all_tokens(inputs))
            .value();
    double errors = 0;
    double squares = 0;
    for (size_t i = 0; i < kernel.size(); ++i) {
      errors += std::pow(kernel[i] - rows.values[i], 2);
      squares += std::pow(rows.values[i], 2);
    }
    EXPECT_LT(std::sqrt(errors / squares), 1e-3)
        << to_string(spec.weights) << " " << to_string(spec.activation);
    const double rms = std::sqrt(squares / static_cast<double>(kernel.size()));
    EXPECT_GT(rms, 0.1) << "outputs are to be of the order of 1";
    EXPECT_LT(rms, 40.0);
  }
}

TEST(Reference, Nvfp4IsItsDequantisedWeights) {
  const FusedMoeSpec spec = exact_variant(small_spec(WeightFormat::kNvfp4));
  FusedMoeSpec bf16 = spec;
  bf16.weights = WeightFormat::kBf16;
  const auto source = make_random_weights(spec, DataKind::kExact, 5).value();
  std::vector<ListedWeights::Expert> experts;
  for (int64_t e = 0; e < spec.experts; ++e) experts.push_back(plain_weights(spec, *source, e));
  ListedWeights dequantised(bf16, experts);
  MoeInputs inputs = make_inputs(spec, uniform(), 5, DataKind::kExact, 5, 0).value();
  const Tensors arguments = call_arguments(spec, inputs, nullptr);
  const auto tokens = all_tokens(inputs);
  EXPECT_EQ(reference_rows(spec, *source, arguments, tokens)->values,
            reference_rows(bf16, dequantised, arguments, tokens)->values);
}

TEST(Reference, RanksOfExpertParallelismAddUpToTheWhole) {
  FusedMoeSpec whole = exact_variant(small_spec());
  const auto source = make_random_weights(whole, DataKind::kExact, 7).value();
  MoeInputs inputs = make_inputs(whole, uniform(), 6, DataKind::kExact, 7, 0).value();
  const auto tokens = all_tokens(inputs);
  const ReferenceRows all =
      reference_rows(whole, *source, call_arguments(whole, inputs, nullptr), tokens).value();

  std::vector<float> sum(all.values.size());
  for (int32_t rank = 0; rank < 3; ++rank) {
    FusedMoeSpec share = whole;
    share.experts = 4;
    share.ep = 3;
    inputs.first_expert = rank * 4;
    std::vector<ListedWeights::Expert> experts;
    for (int64_t e = 0; e < 4; ++e) experts.push_back(plain_weights(whole, *source, rank * 4 + e));
    ListedWeights own(share, experts);
    const ReferenceRows rows =
        reference_rows(share, own, call_arguments(share, inputs, nullptr), tokens).value();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rows.values[i];
  }
  EXPECT_EQ(sum, all.values);
}

TEST(Reference, SingleRowsAreRowsOfTheWhole) {
  const FusedMoeSpec spec = small_spec(WeightFormat::kNvfp4);
  const auto source = make_random_weights(spec, DataKind::kRealistic, 9).value();
  MoeInputs inputs = make_inputs(spec, uniform(), 7, DataKind::kRealistic, 9, 0).value();
  const Tensors arguments = call_arguments(spec, inputs, nullptr);
  const std::vector<int64_t> some = {5, 0, 5};
  const ReferenceRows rows = reference_rows(spec, *source, arguments, some).value();
  EXPECT_EQ(rows.tokens, some);
  for (size_t i = 0; i < some.size(); ++i) {
    const std::vector<float> row = reference_row(spec, *source, arguments, some[i]).value();
    EXPECT_TRUE(std::equal(row.begin(), row.end(),
                           rows.values.begin() + static_cast<int64_t>(i) * spec.hidden));
  }
}

TEST(Reference, ThreadsChangeNothing) {
  const FusedMoeSpec spec = small_spec();
  const auto source = make_random_weights(spec, DataKind::kRealistic, 11).value();
  MoeInputs inputs = make_inputs(spec, uniform(), 7, DataKind::kRealistic, 11, 0).value();
  const Tensors arguments = call_arguments(spec, inputs, nullptr);
  const auto tokens = all_tokens(inputs);
  const std::vector<float> one = reference_rows(spec, *source, arguments, tokens)->values;
  for (int threads : {2, 3, 7}) {
    EXPECT_EQ(reference_rows(spec, *source, arguments, tokens, threads)->values, one) << threads;
  }
}

// Counts what it is asked for.
class CountedWeights final : public WeightSource {
 public:
  explicit CountedWeights(WeightSource& source)
      : source_(source), asked(static_cast<size_t>(source.chunks())) {}
  int64_t chunks() const override { return source_.chunks(); }
  Result<Tensors> chunk(int64_t index) override {
    ++asked.at(static_cast<size_t>(index));
    return source_.chunk(index);
  }

 private:
  WeightSource& source_;

 public:
  std::vector<int> asked;
};

TEST(Reference, EachNeededExpertIsMadeOnceAndNoOther) {
  const FusedMoeSpec spec = small_spec();
  const auto source = make_random_weights(spec, DataKind::kRealistic, 13).value();
  CountedWeights counted(*source);
  MoeInputs inputs = make_inputs(spec, uniform(), 3, DataKind::kRealistic, 13, 0).value();
  ASSERT_TRUE(
      reference_rows(spec, counted, call_arguments(spec, inputs, nullptr), all_tokens(inputs))
          .ok());
  const std::vector<int64_t> rows = rows_per_expert(inputs.routing.ids, 0, spec.experts);
  for (size_t e = 0; e < rows.size(); ++e) EXPECT_EQ(counted.asked[e], rows[e] > 0 ? 1 : 0);
}

TEST(Reference, NoTokensGiveNoRows) {
  const FusedMoeSpec spec = small_spec();
  const auto source = make_random_weights(spec, DataKind::kRealistic, 1).value();
  MoeInputs inputs = make_inputs(spec, uniform(), 0, DataKind::kRealistic, 1, 0).value();
  const Result<ReferenceRows> rows =
      reference_rows(spec, *source, call_arguments(spec, inputs, nullptr), {});
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->values.empty());
}

// A source that cannot give an expert: its error comes through.
class BrokenWeights final : public WeightSource {
 public:
  int64_t chunks() const override { return 12; }
  Result<Tensors> chunk(int64_t) override {
    return Error{ErrorCode::kIo, "shard 3 cannot be read"};
  }
};

TEST(Reference, ErrorsOfTheWeightsComeThrough) {
  const FusedMoeSpec spec = small_spec();
  BrokenWeights source;
  MoeInputs inputs = make_inputs(spec, uniform(), 1, DataKind::kRealistic, 1, 0).value();
  const auto row = reference_row(spec, source, call_arguments(spec, inputs, nullptr), 0);
  EXPECT_EQ(row.error().code, ErrorCode::kIo);
}

TEST(Arguments, InputsOutOfRangeAreRefused) {
  FusedMoeSpec spec = small_spec();
  EXPECT_FALSE(make_inputs(spec, uniform(), -1, DataKind::kExact, 1, 0).ok());
  EXPECT_FALSE(make_inputs(spec, uniform(), 1, DataKind::kExact, 1, 0, 1).ok());
  spec.experts = 4;
  spec.ep = 3;
  EXPECT_TRUE(make_inputs(spec, uniform(), 1, DataKind::kExact, 1, 0, 8).ok());
  EXPECT_FALSE(make_inputs(spec, uniform(), 1, DataKind::kExact, 1, 0, 9).ok());
  spec.hidden = 0;
  EXPECT_FALSE(make_inputs(spec, uniform(), 1, DataKind::kExact, 1, 0).ok());
}

TEST(Arguments, FollowTheOperatorsOrder) {
  const auto names = [](const FusedMoeSpec& spec) {
    MoeInputs inputs = make_inputs(spec, uniform(), 2, DataKind::kRealistic, 1, 0).value();
    std::vector<std::string> result;
    for (const Tensor& tensor : call_arguments(spec, inputs, nullptr))
      result.push_back(tensor.name);
    return result;
  };
  FusedMoeSpec spec = small_spec();
  EXPECT_THAT(names(spec), ElementsAre("hidden", "logits", "output"));
  spec.router.selection_bias = true;
  spec.experts = 4;
  spec.ep = 3;
  EXPECT_THAT(names(spec),
              ElementsAre("hidden", "logits", "router_bias", "first_expert", "output"));
  spec.given_routing = true;
  EXPECT_THAT(names(spec),
              ElementsAre("hidden", "topk_ids", "topk_weights", "first_expert", "output"));
}

TEST(Arguments, FollowFromTheSeedAndSampleAlone) {
  const FusedMoeSpec spec = small_spec();
  const MoeInputs a = make_inputs(spec, uniform(), 4, DataKind::kRealistic, 1, 2).value();
  EXPECT_EQ(a.hidden, make_inputs(spec, uniform(), 4, DataKind::kRealistic, 1, 2)->hidden);
  EXPECT_NE(a.hidden, make_inputs(spec, uniform(), 4, DataKind::kRealistic, 1, 3)->hidden);
  EXPECT_NE(a.hidden, make_inputs(spec, uniform(), 4, DataKind::kRealistic, 2, 2)->hidden);
}

}  // namespace
}  // namespace moetune

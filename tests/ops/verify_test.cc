#include "ops/moe/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/moe_testing.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;
using testing_moe::all_tokens;
using testing_moe::KernelOptions;
using testing_moe::ListedWeights;
using testing_moe::OutputRows;
using testing_moe::run_kernel;
using testing_moe::small_spec;

using Slots = std::vector<std::pair<int64_t, float>>;

// A problem with its reference rows, and what kernels make of it.
class Bench {
 public:
  Bench(const FusedMoeSpec& spec, DataKind kind, int64_t tokens, uint64_t seed = 1)
      : spec_(spec), kind_(kind), source_(make_random_weights(spec, kind, seed).value()) {
    inputs_ = make_inputs(spec, parse_workload("uniform").value(), tokens, kind, seed, 0).value();
    reference_ =
        reference_rows(spec, *source_, call_arguments(spec, inputs_, nullptr), all_tokens(inputs_))
            .value();
  }

  OutputCheck judge(const KernelOptions& options) {
    const OutputRows rows(spec_, run_kernel(spec_, *source_, inputs_, options));
    return kind_ == DataKind::kExact ? compare_exact(reference_, rows.tensor)
                                     : compare_close(reference_, rows.tensor);
  }

  OutputCheck judge_fp8(const KernelOptions& options) {
    const OutputRows rows(spec_, run_kernel(spec_, *source_, inputs_, options));
    return compare_close(reference_, rows.tensor, fp8_product_limits(rows.tensor.type));
  }

  const MoeInputs& inputs() const { return inputs_; }
  const ReferenceRows& reference() const { return reference_; }

 private:
  FusedMoeSpec spec_;
  DataKind kind_;
  std::unique_ptr<WeightSource> source_;
  MoeInputs inputs_;
  ReferenceRows reference_;
};

FusedMoeSpec realistic_spec(DataType output, WeightFormat format = WeightFormat::kBf16) {
  return {.hidden = 192,
          .intermediate = 96,
          .experts = 16,
          .global_experts = 16,
          .top_k = 8,
          .weights = format,
          .output = output};
}

// ---- Right kernels pass, by a margin ----

OutputCheck close_on_threads(const ReferenceRows& reference, const Tensor& rows) {
  return compare_close(reference, rows, 3);
}

TEST(VerifyClose, KernelsThatFollowTheDefinitionStayFarBelowTheLimits) {
  for (WeightFormat format : testing_moe::kWeightFormats) {
    for (DataType output : {DataType::kBf16, DataType::kF32}) {
      const CloseLimits limits = close_limits(output);
      for (int64_t size : {32, 192, 1000}) {
        FusedMoeSpec spec = realistic_spec(output, format);
        spec.hidden = size;
        spec.intermediate = size / 2;
        if (size > 500) spec.experts = spec.global_experts = 8;
        Bench bench(spec, DataKind::kRealistic, size > 500 ? 2 : 17);
        for (size_t lanes : {1, 8, 32}) {
          const OutputCheck check = bench.judge({.lanes = lanes});
          EXPECT_TRUE(check.verdict.ok) << check.verdict.reason;
          EXPECT_LT(check.relative_rms, limits.relative_rms / 5);
          EXPECT_LT(check.one_minus_cosine, limits.one_minus_cosine / 20);
          EXPECT_LT(check.largest_error, 0.5);
        }
      }
    }
  }
}

TEST(VerifyClose, OneMoreRoundingOfHIsStillRight) {
  for (DataType output : {DataType::kBf16, DataType::kF32}) {
    Bench bench(realistic_spec(output), DataKind::kRealistic, 17);
    const OutputCheck check = bench.judge({.weights_before_gemm2 = true});
    EXPECT_TRUE(check.verdict.ok) << check.verdict.reason;
  }
}

TEST(VerifyClose, EveryActivationPasses) {
  for (int i = 0; i < 4; ++i) {
    FusedMoeSpec spec = realistic_spec(DataType::kBf16);
    spec.activation = static_cast<Activation>(i);
    spec.bias = true;
    Bench bench(spec, DataKind::kRealistic, 9);
    const OutputCheck check = bench.judge({.lanes = 8});
    EXPECT_TRUE(check.verdict.ok) << check.verdict.reason;
  }
}

// ---- Wrong ones do not ----

struct Fault {
  const char* name;
  KernelOptions options;
};

// Each is wrong in one thing only, most of them for one token (the fourth) or one expert.
std::vector<Fault> faults(const FusedMoeSpec& spec, const MoeInputs& inputs) {
  const auto expert_of_token_3 = inputs.routing.ids[static_cast<size_t>(3 * spec.top_k)];
  const auto for_token_3 = [](auto change) {
    return [change](int64_t token, Slots& slots) {
      if (token == 3) change(slots);
    };
  };
  const auto for_its_expert = [=](auto change) {
    return [=](int64_t expert, ListedWeights::Expert& weights) {
      if (expert == expert_of_token_3) change(weights);
    };
  };
  const auto half = spec.intermediate * spec.hidden;
  return {
      {"routing weight of one expert off by 4 %",
       {.spoil_routing = for_token_3([](Slots& slots) { slots.front().second *= 1.04f; })}},
      {"one expert dropped",
       {.spoil_routing = for_token_3([](Slots& slots) { slots.pop_back(); })}},
      {"two experts' weights swapped", {.spoil_routing = for_token_3([](Slots& slots) {
                                          std::swap(slots.front().second, slots.back().second);
                                        })}},
      {"neighbouring expert taken", {.spoil_routing = for_token_3([&spec](Slots& slots) {
                                       slots[0].first = (slots[0].first + 1) % spec.experts;
                                     })}},
      {"one expert computed twice",
       {.spoil_routing = for_token_3([](Slots& slots) { slots.push_back(slots.back()); })}},
      {"gate and up swapped in one expert",
       {.spoil_weights = for_its_expert([half](ListedWeights::Expert& weights) {
          std::rotate(weights.w13.begin(), weights.w13.begin() + half, weights.w13.end());
        })}},
      {"rows of w2 off by one in one expert",
       {.spoil_weights = for_its_expert([&spec](ListedWeights::Expert& weights) {
          std::rotate(weights.w2.begin(), weights.w2.begin() + spec.intermediate, weights.w2.end());
        })}},
      {"last 16 of k left out in one expert's gate and up",
       {.spoil_weights = for_its_expert([&spec](ListedWeights::Expert& weights) {
          for (size_t row = 0; row < static_cast<size_t>(spec.w13_rows()); ++row) {
            const auto end = weights.w13.begin() + static_cast<int64_t>(row + 1) * spec.hidden;
            std::fill(end - 16, end, 0.0f);
          }
        })}},
      {"one row of w2 is another's",
       {.spoil_weights = for_its_expert([&spec](ListedWeights::Expert& weights) {
          std::copy_n(weights.w2.begin(), spec.intermediate,
                      weights.w2.begin() + 7 * spec.intermediate);
        })}},
  };
}

TEST(VerifyClose, EachFaultIsSeenOnRealisticNumbers) {
  for (DataType output : {DataType::kBf16, DataType::kF32}) {
    const FusedMoeSpec spec = realistic_spec(output);
    Bench bench(spec, DataKind::kRealistic, 9);
    for (const Fault& fault : faults(spec, bench.inputs())) {
      const OutputCheck check = bench.judge(fault.options);
      EXPECT_FALSE(check.verdict.ok)
          << fault.name << " rms " << check.relative_rms << " largest " << check.largest_error;
      EXPECT_THAT(check.verdict.reason, HasSubstr("token")) << fault.name;
    }
  }
}

// ---- fp8 products of serving engines' kernels ----

FusedMoeSpec fp8_spec(ActivationFormat activations) {
  FusedMoeSpec spec = realistic_spec(DataType::kBf16, activations == ActivationFormat::kFp8
                                                          ? WeightFormat::kFp8
                                                          : WeightFormat::kFp8Block);
  spec.hidden = 512;
  spec.intermediate = 256;
  spec.activations = activations;
  return spec;
}

TEST(VerifyFp8Products, SumsOfFewBitsAndOneMoreRoundingAreRightAndBeyondTheUsualLimits) {
  for (ActivationFormat activations : {ActivationFormat::kFp8Block, ActivationFormat::kFp8}) {
    Bench bench(fp8_spec(activations), DataKind::kRealistic, 17);
    const KernelOptions engine = {.fp8_sums = true, .rounds_gate_up = true};
    EXPECT_FALSE(bench.judge(engine).verdict.ok);
    const OutputCheck check = bench.judge_fp8(engine);
    EXPECT_TRUE(check.verdict.ok) << check.verdict.reason;
    EXPECT_LT(check.relative_rms, 0.8 * fp8_product_limits(DataType::kBf16).relative_rms);
    EXPECT_LT(check.largest_error, 0.8);
  }
}

TEST(VerifyFp8Products, EveryFaultButARoutingWeightSlightlyOffIsSeen) {
  const FusedMoeSpec spec = fp8_spec(ActivationFormat::kFp8Block);
  Bench bench(spec, DataKind::kRealistic, 9);
  for (Fault& fault : faults(spec, bench.inputs())) {
    fault.options.fp8_sums = fault.options.rounds_gate_up = true;
    const OutputCheck check = bench.judge_fp8(fault.options);
    if (std::string_view(fault.name).find("4 %") != std::string_view::npos) continue;
    EXPECT_FALSE(check.verdict.ok)
        << fault.name << " rms " << check.relative_rms << " largest " << check.largest_error;
  }
}

TEST(VerifyClose, ANeighboursRowIsSeen) {
  const FusedMoeSpec spec = realistic_spec(DataType::kBf16);
  Bench bench(spec, DataKind::kRealistic, 9);
  std::vector<float> shifted = bench.reference().values;
  std::rotate(shifted.begin(), shifted.begin() + spec.hidden, shifted.end());
  const OutputCheck check = compare_close(bench.reference(), OutputRows(spec, shifted).tensor);
  EXPECT_FALSE(check.verdict.ok);
  EXPECT_THAT(check.verdict.reason, HasSubstr("token 0"));
  EXPECT_THAT(check.verdict.reason, HasSubstr("9 of 9 rows"));
}

TEST(VerifyClose, ARowOffByAFactorIsSeenThoughItsDirectionIsRight) {
  const FusedMoeSpec spec = realistic_spec(DataType::kBf16);
  Bench bench(spec, DataKind::kRealistic, 3);
  std::vector<float> values = bench.reference().values;
  for (size_t i = 0; i < static_cast<size_t>(spec.hidden); ++i) values[i] *= 1.01f;
  EXPECT_FALSE(compare_close(bench.reference(), OutputRows(spec, values).tensor).verdict.ok);
}

TEST(VerifyClose, NotFiniteComesFirstAndIsNamed) {
  const FusedMoeSpec spec = realistic_spec(DataType::kBf16);
  Bench bench(spec, DataKind::kRealistic, 3);
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = bench.reference().values;
    values[0] = 1e6f;
    values[static_cast<size_t>(2 * spec.hidden + 5)] = bad;
    for (auto compare : {close_on_threads, compare_exact}) {
      const OutputCheck check = compare(bench.reference(), OutputRows(spec, values).tensor);
      EXPECT_FALSE(check.verdict.ok);
      EXPECT_THAT(check.verdict.reason, HasSubstr("token 2, column 5"));
      EXPECT_EQ(check.wrong_values, 1);
    }
  }
}

TEST(VerifyClose, RowsWithoutAnyExpertMustBeZero) {
  const FusedMoeSpec spec = small_spec();
  const ReferenceRows zeros{{4}, spec.hidden, std::vector<float>(96, 0.0f)};
  std::vector<float> values(96, -0.0f);
  EXPECT_TRUE(compare_close(zeros, OutputRows(spec, values).tensor).verdict.ok);
  EXPECT_TRUE(compare_exact(zeros, OutputRows(spec, values).tensor).verdict.ok);
  values[17] = 1e-30f;
  EXPECT_FALSE(compare_close(zeros, OutputRows(spec, values).tensor).verdict.ok);
  EXPECT_FALSE(compare_exact(zeros, OutputRows(spec, values).tensor).verdict.ok);
}

TEST(Verify, OutputsOfAnotherShapeAreNotJudged) {
  const FusedMoeSpec spec = small_spec();
  const ReferenceRows reference{{0, 1}, spec.hidden, std::vector<float>(192, 1.0f)};
  const OutputRows right(spec, reference.values);
  for (auto compare : {close_on_threads, compare_exact}) {
    EXPECT_TRUE(compare(reference, right.tensor).verdict.ok);
    Tensor wrong = right.tensor;
    wrong.shape[0] = 1;
    EXPECT_FALSE(compare(reference, wrong).verdict.ok);
    wrong = right.tensor;
    wrong.type = DataType::kF16;
    EXPECT_FALSE(compare(reference, wrong).verdict.ok);
    wrong = right.tensor;
    wrong.data = nullptr;
    EXPECT_FALSE(compare(reference, wrong).verdict.ok);
  }
}

// ---- Exact ----

TEST(VerifyExact, AnyOrderOfSummationGivesTheSameBits) {
  for (WeightFormat format : testing_moe::kWeightFormats) {
    for (Activation activation : {Activation::kSwiGlu, Activation::kRelu2}) {
      FusedMoeSpec spec = realistic_spec(DataType::kF32, format);
      spec.activation = activation;
      Bench bench(exact_variant(spec), DataKind::kExact, 9);
      for (size_t lanes : {1, 2, 8, 31, 96}) {
        const OutputCheck check = bench.judge({.lanes = lanes});
        EXPECT_TRUE(check.verdict.ok) << check.verdict.reason;
      }
      EXPECT_TRUE(bench.judge({.weights_before_gemm2 = true}).verdict.ok)
          << "powers of two change no rounding";
    }
  }
}

// Off by the smallest weight that the matrix has.
void spoil_one(std::vector<float>& weights, size_t at) {
  float unit = 1e30f;
  for (float w : weights) unit = w == 0 ? unit : std::min(unit, std::abs(w));
  weights[at] += unit;
}

TEST(VerifyExact, ASingleWrongWeightShows) {
  for (WeightFormat format : testing_moe::kWeightFormats) {
    for (DataType output : {DataType::kF32, DataType::kBf16}) {
      const FusedMoeSpec spec = exact_variant(realistic_spec(output, format));
      Bench bench(spec, DataKind::kExact, 9);
      const auto w13_size = static_cast<size_t>(spec.w13_rows() * spec.hidden);
      const auto w2_size = static_cast<size_t>(spec.hidden * spec.intermediate);
      for (size_t i = 0; i < 6; ++i) {
        const size_t in_w13 = i * (w13_size - 1) / 5;
        const size_t in_w2 = i * (w2_size - 1) / 5;
        const OutputCheck w13 =
            bench.judge({.lanes = 8, .spoil_weights = [&](int64_t e, ListedWeights::Expert& w) {
                           if (e == 5) spoil_one(w.w13, in_w13);
                         }});
        EXPECT_FALSE(w13.verdict.ok) << "w13 element " << in_w13;
        const OutputCheck w2 =
            bench.judge({.lanes = 8, .spoil_weights = [&](int64_t e, ListedWeights::Expert& w) {
                           if (e == 5) spoil_one(w.w2, in_w2);
                         }});
        EXPECT_FALSE(w2.verdict.ok) << "w2 element " << in_w2;
      }
    }
  }
}

TEST(VerifyExact, EachFaultIsSeen) {
  const FusedMoeSpec spec = exact_variant(realistic_spec(DataType::kBf16));
  Bench bench(spec, DataKind::kExact, 9);
  for (const Fault& fault : faults(spec, bench.inputs())) {
    const bool invisible =
        std::string_view(fault.name).starts_with("gate and up swapped");  // gate + up = up + gate
    const bool equal_weights =
        std::string_view(fault.name).starts_with("two experts' weights") &&
        bench.inputs().routing.weights[24] == bench.inputs().routing.weights[31];
    if (invisible || equal_weights) continue;
    EXPECT_FALSE(bench.judge(fault.options).verdict.ok) << fault.name;
  }
}

TEST(VerifyExact, TheFirstWrongValueIsNamedAndAllAreCounted) {
  const FusedMoeSpec spec = small_spec();
  const ReferenceRows reference{{3, 8}, spec.hidden, std::vector<float>(192, 2.0f)};
  std::vector<float> values = reference.values;
  values[96 + 5] = 3;
  values[96 + 9] = 4;
  const OutputCheck check = compare_exact(reference, OutputRows(spec, values).tensor);
  EXPECT_EQ(check.verdict.reason,
            "output is 3 at token 8, column 5, not 2 (2 of 192 values are wrong)");
  EXPECT_EQ(check.wrong_values, 2);
}

TEST(VerifyExact, ReferenceIsRoundedToTheOutputType) {
  FusedMoeSpec spec = small_spec();
  const ReferenceRows reference{{0}, spec.hidden, std::vector<float>(96, 257.0f)};
  EXPECT_TRUE(compare_exact(reference, OutputRows(spec, reference.values).tensor)
                  .verdict.ok);  // 256 in bf16
  spec.output = DataType::kF32;
  EXPECT_TRUE(compare_exact(reference, OutputRows(spec, reference.values).tensor).verdict.ok);
  EXPECT_FALSE(
      compare_exact(reference, OutputRows(spec, std::vector<float>(96, 256.0f)).tensor).verdict.ok);
}

TEST(Verify, GatheredRowsAreThoseAskedFor) {
  for (DataType type : {DataType::kBf16, DataType::kF32}) {
    FusedMoeSpec spec = small_spec();
    spec.hidden = 3;
    spec.output = type;
    const OutputRows output(spec, {0, 1, 2, 10, 11, 12, 20, 21, 22});
    std::vector<std::byte> gathered = gather_rows(output.tensor, std::vector<int64_t>{2, 0});
    const ReferenceRows expected{{2, 0}, 3, {20, 21, 22, 0, 1, 2}};
    EXPECT_TRUE(compare_exact(expected, {"output", type, {2, 3}, gathered.data()}).verdict.ok);
  }
}

// ---- Which rows ----

MoeInputs inputs_of(const FusedMoeSpec& spec, const char* workload, int64_t tokens) {
  return make_inputs(spec, parse_workload(workload).value(), tokens, DataKind::kRealistic, 1, 0)
      .value();
}

TEST(SampleRows, AreDistinctAscendingAndHoldBothEnds) {
  const FusedMoeSpec spec = small_spec();
  for (int64_t tokens : {1, 2, 3, 7, 16, 33, 64, 127, 128, 129, 257, 1000}) {
    for (int64_t limit : {1, 2, 5, 16, 64, 2000}) {
      const std::vector<int64_t> rows =
          sample_rows(spec, inputs_of(spec, "uniform", tokens), limit, 1);
      EXPECT_EQ(static_cast<int64_t>(rows.size()), std::min(limit, tokens));
      EXPECT_EQ(rows.front(), 0);
      if (limit > 1) {
        EXPECT_EQ(rows.back(), tokens - 1);
      }
      EXPECT_TRUE(std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) ==
                  rows.end());
    }
  }
}

TEST(SampleRows, TouchAsManyExpertsAsTheyCan) {
  FusedMoeSpec spec = small_spec();
  spec.experts = spec.global_experts = 128;
  spec.top_k = 8;
  for (const char* workload : {"uniform", "zipf:1.2"}) {
    const MoeInputs inputs = inputs_of(spec, workload, 64);
    const std::vector<int64_t> rows = sample_rows(spec, inputs, 40, 1);
    std::vector<int32_t> ids;
    for (int64_t row : rows) {
      ids.insert(ids.end(), inputs.routing.ids.begin() + row * 8,
                 inputs.routing.ids.begin() + row * 8 + 8);
    }
    const int64_t touched = touched_experts(rows_per_expert(inputs.routing.ids, 0, 128));
    EXPECT_GE(touched_experts(rows_per_expert(ids, 0, 128)), touched - 2) << workload;
  }
}

TEST(SampleRows, SeeEveryTileEdgeOverSomeSamples) {
  const FusedMoeSpec spec = small_spec();
  const MoeInputs inputs = inputs_of(spec, "uniform", 1000);
  std::vector<bool> seen(1000);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (int64_t row : sample_rows(spec, inputs, 16, seed)) seen[static_cast<size_t>(row)] = true;
  }
  for (size_t row : {3, 4, 5, 6, 7, 8, 15, 16, 31, 32, 63, 64, 959, 960, 991, 992, 995, 996})
    EXPECT_TRUE(seen[row]) << row;
}

TEST(SampleRows, ARankWithoutRowsAndACallWithoutTokensAreFine) {
  FusedMoeSpec spec = small_spec();
  EXPECT_TRUE(sample_rows(spec, inputs_of(spec, "uniform", 0), 8, 1).empty());
  spec.experts = 4;
  spec.ep = 3;
  MoeInputs inputs = inputs_of(spec, "uniform", 10);
  std::fill(inputs.routing.ids.begin(), inputs.routing.ids.end(), 11);
  EXPECT_EQ(sample_rows(spec, inputs, 8, 1).size(), 8u);
}

}  // namespace
}  // namespace moetune

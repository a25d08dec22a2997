#include "ops/moe/moe_workbench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "base/bf16.h"
#include "ops/moe/arguments.h"
#include "ops/moe/reference.h"
#include "ops/moe_testing.h"

namespace moetune {
namespace {

FusedMoeSpec small_spec() {
  FusedMoeSpec spec;
  spec.hidden = 48;
  spec.intermediate = 32;
  spec.experts = spec.global_experts = 64;
  spec.top_k = 4;
  return spec;
}

std::vector<FusedMoeSpec> varied_specs() {
  std::vector<FusedMoeSpec> specs = {small_spec()};
  const auto add = [&specs](auto change) {
    FusedMoeSpec spec = small_spec();
    change(spec);
    specs.push_back(spec);
  };
  add([](auto& s) { s.hidden = 64; });
  add([](auto& s) { s.intermediate = 16; });
  add([](auto& s) { s.experts = s.global_experts = 32; });
  add([](auto& s) { s.global_experts = 128, s.ep = 2; });
  add([](auto& s) { s.top_k = 2; });
  add([](auto& s) { s.weights = WeightFormat::kNvfp4; });
  add([](auto& s) { s.output = DataType::kF32; });
  add([](auto& s) { s.activation = Activation::kSwiGluClamped; });
  add([](auto& s) { s.bias = true; });
  add([](auto& s) { s.given_routing = true; });
  add([](auto& s) { s.tp = 2; });
  add([](auto& s) { s.router.score = Score::kSigmoid; });
  add([](auto& s) { s.router.selection_bias = true; });
  add([](auto& s) { s.router.groups = 8, s.router.top_groups = 4; });
  add([](auto& s) { s.router.score_after_top_k = true; });
  add([](auto& s) { s.router.renormalise = false; });
  add([](auto& s) { s.router.scale = 2.827f; });
  return specs;
}

TEST(MoeProblem, KeysDifferWhereAnythingThatChangesTheKernelDiffers) {
  const std::vector<FusedMoeSpec> specs = varied_specs();
  for (size_t i = 0; i < specs.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(moe_problem(specs[i]).key(), moe_problem(specs[j]).key()) << i << " " << j;
  }
}

TEST(MoeProblem, RoundTripsEverySpecification) {
  for (const FusedMoeSpec& spec : varied_specs()) {
    const Result<FusedMoeSpec> again = moe_spec_of(moe_problem(spec));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, spec) << moe_problem(spec).key();
  }
}

TEST(MoeProblem, NamesTheAttributeItCannotRead) {
  Problem problem = moe_problem(small_spec());
  problem.attributes["hidden"] = "many";
  EXPECT_NE(moe_spec_of(problem).error().message.find("hidden"), std::string::npos);
  problem = moe_problem(small_spec());
  problem.attributes["colour"] = "blue";
  EXPECT_NE(moe_spec_of(problem).error().message.find("colour"), std::string::npos);
  problem = moe_problem(small_spec());
  problem.attributes.erase("top_k");
  EXPECT_FALSE(moe_spec_of(problem).ok());
}

// A bench and the right output of one of its calls.
struct Bench {
  explicit Bench(const FusedMoeSpec& s, DataKind kind = DataKind::kRealistic,
                 Scale scale = Scale::kFull, bool accepts_engine_roundings = false,
                 int64_t tokens = 40)
      : spec(kind == DataKind::kExact ? exact_variant(s) : s), scale_(scale) {
    c.tokens = tokens;
    bench = std::move(make_moe_workbench(s, {.kind = kind,
                                             .seed = 7,
                                             .reference_rows = 3,
                                             .last_level_cache_bytes = 4096,
                                             .accepts_engine_roundings = accepts_engine_roundings})
                          .value());
    arguments = bench->arguments(c, scale, 0).value();
    rows = bench->check_rows(c, scale, 0);
    set_output(reference_rows(spec, bench->weights(Scale::kFull), arguments, rows).value().values);
  }
  void set_output(const std::vector<float>& values) { output = testing_moe::to_bf16(values); }
  // What a serving engine's kernel makes of the case, by tensor cores for fp8.
  void set_engine_output() {
    const auto workload = parse_workload(c.workload).value();
    const MoeInputs inputs =
        make_inputs(spec, workload, c.tokens, DataKind::kRealistic, c.seed, 0).value();
    const bool is_fp8 = spec.activations != ActivationFormat::kA16;
    set_output(testing_moe::run_kernel(spec, bench->weights(Scale::kFull), inputs,
                                       {.fp8_sums = is_fp8, .rounds_gate_up = true}));
  }
  void set_rounded_output(Rounding rounding) {
    set_output(reference_rows(spec, bench->weights(Scale::kFull), arguments, rows, 1, rounding)
                   .value()
                   .values);
  }
  Verdict judge() {
    const Tensors outputs = {{"output",
                              DataType::kBf16,
                              {static_cast<int64_t>(rows.size()), spec.hidden},
                              output.data()}};
    return bench->judge(c, scale_, 0, rows, outputs);
  }

  // The same output, of which only these rows are shown.
  Verdict judge(std::span<const int64_t> shown) {
    std::vector<uint16_t> some;
    for (const int64_t row : shown) {
      const auto first = output.begin() + row * spec.hidden;
      some.insert(some.end(), first, first + spec.hidden);
    }
    const auto count = static_cast<int64_t>(shown.size());
    return bench->judge(c, scale_, 0, shown,
                        {{"output", DataType::kBf16, {count, spec.hidden}, some.data()}});
  }
  void spoil(int64_t row) {
    uint16_t& value = output[static_cast<size_t>(row * spec.hidden + 5)];
    value = float_to_bf16(bf16_to_float(value) + 3);
  }

  FusedMoeSpec spec;
  Scale scale_;
  Case c{.tokens = 40, .workload = "uniform", .seed = 3};
  std::unique_ptr<Workbench> bench;
  Tensors arguments;
  std::vector<int64_t> rows;
  std::vector<uint16_t> output;
};

// A helper process knows the problem only, and its candidates are judged by data made elsewhere.
TEST(MoeWorkbench, InputsFollowFromTheProblem) {
  const Case c{.tokens = 5, .workload = "zipf:1.2", .seed = 11};
  for (const FusedMoeSpec& spec : varied_specs()) {
    for (const DataKind kind : {DataKind::kRealistic, DataKind::kExact}) {
      const MoeWorkbenchOptions options{.kind = kind, .seed = 7, .last_level_cache_bytes = 4096};
      const auto bench = std::move(make_moe_workbench(spec, options)).value();
      const FusedMoeSpec told = moe_spec_of(bench->problem()).value();
      const auto other = std::move(make_moe_workbench(told, options)).value();
      for (int sample = 0; sample < 3; ++sample) {
        const Tensors ours = bench->arguments(c, Scale::kFull, sample).value();
        const Tensors theirs = other->arguments(c, Scale::kFull, sample).value();
        ASSERT_EQ(ours.size(), theirs.size());
        for (size_t i = 0; i + 1 < ours.size(); ++i) {
          EXPECT_EQ(std::memcmp(ours[i].data, theirs[i].data, ours[i].bytes()), 0)
              << ours[i].name << " of " << bench->problem().key();
        }
      }
    }
  }
}

TEST(MoeWorkbench, AcceptsTheReferencesOwnOutput) {
  for (const DataKind kind : {DataKind::kRealistic, DataKind::kExact}) {
    for (const Scale scale : {Scale::kFull, Scale::kSubset}) {
      Bench bench(small_spec(), kind, scale);
      EXPECT_TRUE(bench.judge().ok) << bench.judge().reason;
    }
  }
}

TEST(MoeWorkbench, ARowThatTheReferenceWasNotAskedForMustAgreeWithAnOutputThatWasRight) {
  Bench bench(small_spec());
  ASSERT_TRUE(bench.judge().ok);
  for (size_t row = 0; row < bench.rows.size(); ++row) {
    const size_t at = row * static_cast<size_t>(bench.spec.hidden);
    const uint16_t right = bench.output[at];
    bench.output[at] = float_to_bf16(bf16_to_float(right) + 40);
    EXPECT_FALSE(bench.judge().ok) << "row " << row;
    bench.output[at] = right;
  }
  EXPECT_TRUE(bench.judge().ok);
}

TEST(MoeWorkbench, ANonFiniteFirstOutputIsNeverWhatOthersAreComparedWith) {
  Bench bench(small_spec());
  const std::vector<uint16_t> right = bench.output;
  std::fill(bench.output.begin(), bench.output.end(), uint16_t{0xFFFF});
  EXPECT_FALSE(bench.judge().ok);
  bench.output = right;
  EXPECT_TRUE(bench.judge().ok);
}

FusedMoeSpec fp8_spec(bool blocks = true) {
  FusedMoeSpec spec = small_spec();
  spec.weights = blocks ? WeightFormat::kFp8Block : WeightFormat::kFp8;
  spec.hidden = 256;
  spec.intermediate = 128;
  spec.activations = blocks ? ActivationFormat::kFp8Block : ActivationFormat::kFp8;
  return spec;
}

// Short sums, and gate and up in bf16, move values of h over to the next code of e4m3.
TEST(MoeWorkbench, Fp8ProductsOfEnginesAreRightWhereTheyAreAcceptedAndNowhereElse) {
  for (const bool blocks : {true, false}) {
    Bench strict(fp8_spec(blocks));
    strict.set_engine_output();
    EXPECT_FALSE(strict.judge().ok);
    Bench bench(fp8_spec(blocks), DataKind::kRealistic, Scale::kFull, true);
    EXPECT_TRUE(bench.judge().ok);
    bench.set_engine_output();
    EXPECT_TRUE(bench.judge().ok) << bench.judge().reason;
  }
}

// Each rounding has rows of its own that later outputs must agree with; the first under one of them
// agrees with the others, if not as closely.
TEST(MoeWorkbench, EveryRowIsJudgedUnderEveryRounding) {
  for (const bool is_fp8 : {true, false}) {
    FusedMoeSpec spec = fp8_spec();
    if (!is_fp8) spec.weights = WeightFormat::kBf16, spec.activations = ActivationFormat::kA16;
    for (const Rounding first : {Rounding::kDefinition, Rounding::kGateUp}) {
      Bench bench(spec, DataKind::kRealistic, Scale::kFull, true);
      bench.set_rounded_output(first);
      ASSERT_TRUE(bench.judge().ok);
      for (const Rounding then :
           {Rounding::kDefinition, Rounding::kGateUp, Rounding::kGateUpActivated}) {
        bench.set_rounded_output(then);
        const std::vector<uint16_t> right = bench.output;
        for (size_t row = 0; row < bench.rows.size(); ++row) {
          const size_t at = row * static_cast<size_t>(bench.spec.hidden);
          const float factor = is_fp8 ? 1.1f : 1.03f;
          for (size_t i = 0; i < static_cast<size_t>(bench.spec.hidden); ++i)
            bench.output[at + i] = float_to_bf16(factor * bf16_to_float(right[at + i]));
          EXPECT_FALSE(bench.judge().ok) << "row " << row << " is too large";
          bench.output = right;
        }
        EXPECT_TRUE(bench.judge().ok) << bench.judge().reason;
      }
    }
  }
}

TEST(MoeWorkbench, ALookIsAtAFewRowsOfMany) {
  Bench few(small_spec());
  EXPECT_EQ(few.bench->look_rows(few.c, Scale::kFull, 0), few.rows);

  Bench bench(small_spec(), DataKind::kRealistic, Scale::kFull, false, 300);
  const std::vector<int64_t> look = bench.bench->look_rows(bench.c, Scale::kFull, 0);
  EXPECT_GE(look.size(), 64u);
  EXPECT_LE(look.size(), 67u);
  EXPECT_TRUE(std::is_sorted(look.begin(), look.end()));
  EXPECT_EQ(look.front(), 0);
  EXPECT_EQ(look.back(), 299);
  EXPECT_TRUE(bench.judge(look).ok) << bench.judge(look).reason;
  const std::vector<uint16_t> right = bench.output;
  for (const int64_t row : look) {
    bench.spoil(row);
    EXPECT_FALSE(bench.judge(look).ok) << row;
    bench.output = right;
  }
}

// What was right at a look, and what is right in all rows, hold each other's rows to account.
TEST(MoeWorkbench, WhatALookDoesNotShowTheCheckDoes) {
  Bench bench(small_spec(), DataKind::kRealistic, Scale::kFull, false, 300);
  const std::vector<int64_t> look = bench.bench->look_rows(bench.c, Scale::kFull, 0);
  ASSERT_TRUE(bench.judge(look).ok);
  const std::vector<uint16_t> right = bench.output;
  const auto unseen = std::find_if(bench.rows.begin(), bench.rows.end(), [&](int64_t row) {
    return !std::binary_search(look.begin(), look.end(), row);
  });
  ASSERT_NE(unseen, bench.rows.end());
  for (const int64_t row : look) {
    bench.spoil(row);
    EXPECT_FALSE(bench.judge().ok) << row << ", which the look had seen";
    bench.output = right;
  }
  ASSERT_TRUE(bench.judge().ok) << bench.judge().reason;
  bench.spoil(*unseen);
  EXPECT_TRUE(bench.judge(look).ok);
  EXPECT_FALSE(bench.judge().ok) << "all rows of another one are known now";
}

// Rows that no look shows under a rounding are held against what was right under another one.
TEST(MoeWorkbench, ALookUnderOneRoundingHidesNoRowFromAnother) {
  FusedMoeSpec spec = fp8_spec();
  spec.weights = WeightFormat::kBf16;
  spec.activations = ActivationFormat::kA16;
  Bench bench(spec, DataKind::kRealistic, Scale::kFull, true, 300);
  const std::vector<int64_t> look = bench.bench->look_rows(bench.c, Scale::kFull, 0);
  bench.set_rounded_output(Rounding::kGateUp);
  ASSERT_TRUE(bench.judge(look).ok);
  bench.set_rounded_output(Rounding::kDefinition);
  ASSERT_TRUE(bench.judge().ok);
  const auto unseen = std::find_if(bench.rows.begin(), bench.rows.end(), [&](int64_t row) {
    return !std::binary_search(look.begin(), look.end(), row);
  });
  ASSERT_NE(unseen, bench.rows.end());
  bench.set_rounded_output(Rounding::kGateUp);
  const std::vector<uint16_t> right = bench.output;
  bench.spoil(*unseen);
  EXPECT_FALSE(bench.judge().ok);
  bench.output = right;
  EXPECT_TRUE(bench.judge().ok) << bench.judge().reason;
}

TEST(MoeWorkbench, KernelsOfEnginesAreRightInBf16) {
  FusedMoeSpec spec = fp8_spec();
  spec.weights = WeightFormat::kBf16;
  spec.activations = ActivationFormat::kA16;
  Bench bench(spec, DataKind::kRealistic, Scale::kFull, true);
  bench.set_engine_output();
  EXPECT_TRUE(bench.judge().ok) << bench.judge().reason;
}

TEST(MoeWorkbench, ExactDataShowsOneWrongBit) {
  Bench bench(small_spec(), DataKind::kExact);
  ASSERT_TRUE(bench.judge().ok);
  bench.output.back() ^= 1;
  EXPECT_FALSE(bench.judge().ok);
}

TEST(MoeWorkbench, ASubsetKeepsRowsPerExpertAndTheWholeRoutersWidth) {
  const FusedMoeSpec spec = small_spec();
  Bench bench(spec, DataKind::kRealistic, Scale::kSubset);
  const int64_t few = bench.bench->weights(Scale::kSubset).chunks();
  ASSERT_LT(few, spec.experts);
  ASSERT_EQ(few, subset_experts(spec, 4096));
  const Tensor* logits = find(bench.arguments, "logits");
  EXPECT_EQ(logits->shape,
            (std::vector<int64_t>{subset_tokens(spec, 4096, 40), spec.global_experts}));
  const Work whole = bench.bench->work(bench.c, Scale::kFull, 0);
  const Work part = bench.bench->work(bench.c, Scale::kSubset, 0);
  const double rows_per_expert = whole.operations / static_cast<double>(spec.experts);
  EXPECT_NEAR(part.operations / static_cast<double>(few), rows_per_expert, 0.1 * rows_per_expert);
  EXPECT_LE(part.touched_chunks, few);
}

TEST(MoeWorkbench, ASubsetExceedsThreeTimesTheCacheOrIsTheWhole) {
  FusedMoeSpec spec = small_spec();
  spec.experts = spec.global_experts = 512;
  const int64_t each = expert_weight_bytes(spec);
  for (const size_t cache :
       {size_t{0}, size_t{4096}, size_t{100'000}, size_t{1} << 20, size_t{1} << 30}) {
    const int64_t few = subset_experts(spec, cache);
    EXPECT_TRUE(few == spec.experts || few * each > 3 * static_cast<int64_t>(cache)) << cache;
    EXPECT_GE(few, 2 * spec.top_k);
  }
  spec.router.groups = 8;
  spec.router.top_groups = 4;
  EXPECT_EQ(subset_experts(spec, 0), spec.experts)
      << "a router with groups cannot keep to a few experts";
}

TEST(MoeWorkbench, GivenWeightsTakeThePlaceOfRandomOnesButNotOfExactOnes) {
  const FusedMoeSpec spec = small_spec();
  const auto first_value = [&](DataKind kind, std::unique_ptr<WeightSource> weights) {
    const auto bench =
        std::move(make_moe_workbench(spec, {.kind = kind, .seed = 7}, std::move(weights))).value();
    const Tensors chunk = bench->weights(Scale::kFull).chunk(3).value();
    return find(chunk, "w13")->as<uint16_t>()[5];
  };
  const auto given = [&](uint64_t seed) {
    return std::move(make_random_weights(spec, DataKind::kRealistic, seed)).value();
  };
  const auto own = given(99);
  const Tensors chunk = own->chunk(3).value();
  const uint16_t wanted = find(chunk, "w13")->as<uint16_t>()[5];
  EXPECT_EQ(first_value(DataKind::kRealistic, given(99)), wanted);
  EXPECT_NE(first_value(DataKind::kRealistic, nullptr), wanted);
  EXPECT_EQ(first_value(DataKind::kExact, given(99)), first_value(DataKind::kExact, nullptr));

  FusedMoeSpec fewer = spec;
  fewer.experts = fewer.global_experts = 5;
  EXPECT_FALSE(make_moe_workbench(
                   spec, {}, std::move(make_random_weights(fewer, DataKind::kRealistic, 1)).value())
                   .ok());
}

TEST(MoeWorkbench, WorkCountsTouchedExpertsAndTheirRows) {
  FusedMoeSpec spec = small_spec();
  const std::vector<int64_t> rows = {3, 0, 1};
  const Work work = moe_work(spec, rows, 2);
  EXPECT_EQ(work.touched_chunks, 2);
  EXPECT_DOUBLE_EQ(work.operations, 2.0 * 4 * (64 * 48 + 48 * 32));
  EXPECT_DOUBLE_EQ(work.bytes, 2.0 * (64 * 48 + 48 * 32) * 2 + 2 * 48 * 4);
}

TEST(MoeWorkbench, ABadWorkloadIsAnErrorAndNotACrash) {
  const auto bench = std::move(make_moe_workbench(small_spec(), {})).value();
  const Case c{.tokens = 3, .workload = "trace:/nowhere/at/all.json", .seed = 0};
  EXPECT_FALSE(bench->arguments(c, Scale::kFull, 0).ok());
}

}  // namespace
}  // namespace moetune

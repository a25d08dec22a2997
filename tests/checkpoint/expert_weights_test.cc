// One rank's experts out of every layout and format, and what is wrong with checkpoints.
#include "checkpoint/expert_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "checkpoint/made_checkpoint.h"

namespace moetune::checkpoint {
namespace {

using namespace testing_checkpoint;  // NOLINT: the tests' own
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_checkpoint::opened;

struct Stored {
  WeightFormat format;
  Style style;
};

std::string name_of(const testing::TestParamInfo<Stored>& stored) {
  std::string name = std::string(moetune::to_string(stored.param.format)) +
                     testing_checkpoint::to_string(stored.param.style);
  std::erase(name, '-');
  return name;
}

std::string bytes_in(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.bytes()};
}

void expect_equal(const Tensors& got, const Tensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, wanted[i].name);
    EXPECT_EQ(got[i].type, wanted[i].type);
    EXPECT_EQ(got[i].shape, wanted[i].shape);
    EXPECT_TRUE(bytes_in(got[i]) == bytes_in(wanted[i])) << got[i].name;
  }
}

class ExpertWeights : public testing::TestWithParam<Stored> {};

TEST_P(ExpertWeights, AreThoseThatWereWritten) {
  const ModelSpec model = small_model(GetParam().format, GetParam().style);
  const FusedMoeSpec spec = whole(model);
  const auto written = std::move(make_random_weights(spec, DataKind::kExact, 1)).value();
  const Folder folder;
  const auto checkpoint = opened(folder, CheckpointMaker(spec, GetParam().style).tensors(*written));
  auto read = make_expert_weights(checkpoint, model, kLayer, spec, 0);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ((*read)->chunks(), spec.experts);
  for (const int64_t expert : {0, 6, 3, 3}) {
    const auto chunk = (*read)->chunk(expert);
    ASSERT_TRUE(chunk.ok()) << chunk.error().message;
    expect_equal(*chunk, written->chunk(expert).value());
  }
  EXPECT_FALSE((*read)->chunk(7).ok());
  EXPECT_FALSE((*read)->chunk(-1).ok());
}

using enum WeightFormat;
INSTANTIATE_TEST_SUITE_P(
    All, ExpertWeights,
    testing::Values(Stored{kBf16, Style::kProjections}, Stored{kFp16, Style::kProjections},
                    Stored{kFp8, Style::kProjections}, Stored{kFp8Block, Style::kProjections},
                    Stored{kNvfp4, Style::kProjections}, Stored{kMxfp4, Style::kProjections},
                    Stored{kBf16, Style::kMixtral}, Stored{kFp8Block, Style::kMixtral},
                    Stored{kFp8, Style::kCompressed}, Stored{kFp8Block, Style::kCompressed},
                    Stored{kNvfp4, Style::kCompressed}, Stored{kMxfp4, Style::kCompressed},
                    Stored{kBf16, Style::kRows}, Stored{kFp16, Style::kRows},
                    Stored{kBf16, Style::kColumns}, Stored{kBf16, Style::kGranite},
                    Stored{kBf16, Style::kGptOss}, Stored{kMxfp4, Style::kGptOss}),
    name_of);

/// A checkpoint of a small layer, changed by whoever tests what is wrong with one.
struct Made {
  explicit Made(WeightFormat format, Style style = Style::kProjections)
      : model(small_model(format, style)), spec(whole(model)) {
    const auto random = std::move(make_random_weights(spec, DataKind::kExact, 1)).value();
    tensors = CheckpointMaker(spec, style).tensors(*random);
  }
  Written& tensor(const std::string& end) {
    for (Written& one : tensors) {
      if (one.name.ends_with(end)) return one;
    }
    ADD_FAILURE() << "no tensor " << end;
    return tensors.front();
  }
  void remove(const std::string& end) {
    std::erase_if(tensors, [&](const Written& one) { return one.name.ends_with(end); });
  }
  Result<std::unique_ptr<WeightSource>> source(int64_t layer = kLayer, int rank = 0) const {
    return make_expert_weights(opened(folder, tensors), model, layer, spec, rank);
  }
  /// The error, of the whole or else of its first chunk.
  Error refused() const {
    auto weights = source();
    if (!weights.ok()) return weights.error();
    auto chunk = (*weights)->chunk(0);
    EXPECT_FALSE(chunk.ok());
    return chunk.ok() ? Error{} : chunk.error();
  }

  ModelSpec model;
  FusedMoeSpec spec;
  std::vector<Written> tensors;
  Folder folder;
};

TEST(ExpertWeightsInPlace, NeighboursInTheFileAreNotCopied) {
  const Made made(WeightFormat::kBf16);
  const auto checkpoint = opened(made.folder, made.tensors);
  const auto weights =
      std::move(make_expert_weights(checkpoint, made.model, kLayer, made.spec, 0)).value();
  const Tensors chunk = weights->chunk(2).value();
  const auto* gate = checkpoint->find("model.layers.3.mlp.experts.2.gate_proj.weight").value();
  const auto* down = checkpoint->find("model.layers.3.mlp.experts.2.down_proj.weight").value();
  EXPECT_EQ(find(chunk, "w13")->data, gate->bytes.data()) << "gate and up follow each other";
  EXPECT_EQ(find(chunk, "w2")->data, down->bytes.data());
}

TEST(ExpertWeightsInPlace, ValuesAtAnOddAddressAreCopied) {
  Made made(WeightFormat::kBf16);
  made.tensors.insert(made.tensors.begin(), {"a", "U8", {1}, "x"});
  const auto weights = std::move(made.source()).value();
  const Tensors chunk = weights->chunk(2).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(find(chunk, "w13")->data) % 2, 0u);
  const auto random = std::move(make_random_weights(made.spec, DataKind::kExact, 1)).value();
  expect_equal(chunk, random->chunk(2).value());
}

TEST(ExpertWeightsOtherTypes, F32IsRoundedToBf16) {
  Made made(WeightFormat::kBf16);
  for (Written& tensor : made.tensors) {
    std::vector<float> values(tensor.bytes.size() / 2);
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, &tensor.bytes[2 * i], 2);
      values[i] = bf16_to_float(bits) * (1 + 0x1p-10f);  // Rounds back.
    }
    tensor.type = "F32";
    tensor.bytes = bytes_of(values);
  }
  const auto weights = std::move(made.source()).value();
  const auto random = std::move(make_random_weights(made.spec, DataKind::kExact, 1)).value();
  expect_equal(weights->chunk(4).value(), random->chunk(4).value());
}

TEST(ExpertWeightsOtherTypes, BlockScalesMayBeBf16) {
  Made made(WeightFormat::kFp8Block);
  for (Written& tensor : made.tensors) {
    if (tensor.type != "F32") continue;
    std::vector<uint16_t> values;  // Powers of two here: exact.
    for (size_t at = 0; at < tensor.bytes.size(); at += 4) {
      float value = 0;
      std::memcpy(&value, &tensor.bytes[at], 4);
      values.push_back(float_to_bf16(value));
    }
    tensor.type = "BF16";
    tensor.bytes = bytes_of(values);
  }
  const auto weights = std::move(made.source()).value();
  const auto random = std::move(make_random_weights(made.spec, DataKind::kExact, 1)).value();
  expect_equal(weights->chunk(1).value(), random->chunk(1).value());
}

TEST(ExpertWeightsNames, AMultimodalModelsLayersAreFound) {
  for (const char* prefix : {"language_model.model.", "model.language_model.", ""}) {
    Made made(WeightFormat::kBf16);
    for (Written& tensor : made.tensors) tensor.name.replace(0, strlen("model."), prefix);
    EXPECT_TRUE(made.source().ok()) << prefix;
  }
}

// ---- What is wrong with a checkpoint ----

TEST(ExpertWeightsRefused, ALayerThatIsNotThere) {
  Made made(WeightFormat::kBf16);
  made.model.dense_first = 3;
  made.tensors.push_back({"model.layers.1.mlp.up_proj.weight", "U8", {1}, "x"});
  const auto none = made.source(77);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("no layer 77"));
  const auto dense = made.source(1);
  ASSERT_FALSE(dense.ok());
  EXPECT_THAT(dense.error().message, HasSubstr("no experts in layer 1"));
  EXPECT_THAT(dense.error().hint, HasSubstr("first layer with experts is 3"));
}

TEST(ExpertWeightsRefused, AMissingTensorOfAnyPart) {
  for (const char* part : {"experts.6.up_proj.weight", "experts.0.gate_proj.weight_scale",
                           "experts.5.down_proj.weight_scale_2"}) {
    Made made(WeightFormat::kNvfp4);
    made.remove(part);
    const auto refused = made.source();
    ASSERT_FALSE(refused.ok()) << part;
    EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(refused.error().message, HasSubstr(part));
  }
}

TEST(ExpertWeightsRefused, AnotherShapeThanTheConfigsNamesBoth) {
  Made made(WeightFormat::kBf16);
  made.model.intermediate = made.spec.intermediate = 64;
  const Error error = made.refused();
  EXPECT_EQ(error.code, ErrorCode::kParse);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("model.safetensors"),
                    HasSubstr("\"model.layers.3.mlp.experts.0.gate_proj.weight\" is BF16 [38, 48]"),
                    HasSubstr("not [64, 48]")));
}

TEST(ExpertWeightsRefused, AnotherTypeInTheMiddleOfALayer) {
  Made made(WeightFormat::kBf16);
  made.tensor("experts.4.up_proj.weight").type = "F16";
  EXPECT_THAT(made.refused().message, AllOf(HasSubstr("experts.4.up_proj"), HasSubstr("F16"),
                                            HasSubstr("of the layer's format, bf16")));
}

TEST(ExpertWeightsRefused, ALayerInAnotherFormatThanTheConfigsSaysBoth) {
  Made made(WeightFormat::kBf16);
  made.model.weights = made.spec.weights = WeightFormat::kFp8;
  made.model.weights_text = "modelopt FP8";
  const Error error = made.refused();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("layer 3"), HasSubstr("in bf16, not in fp8"),
                    HasSubstr("modelopt FP8"), HasSubstr("down_proj.weight\" is BF16")));
}

TEST(ExpertWeightsRefused, FormatsThatAreNotOursAreNamed) {
  Made rows(WeightFormat::kFp8);
  for (Written& tensor : rows.tensors) {
    if (!tensor.name.ends_with("_scale")) continue;
    const int64_t count =
        tensor.name.find("down") != std::string::npos ? rows.model.hidden : rows.model.intermediate;
    tensor.shape = {count, 1};
    tensor.bytes = std::string(static_cast<size_t>(4 * count), '\0');
  }
  EXPECT_THAT(rows.refused().message,
              AllOf(HasSubstr("weight_scale\" is F32"), HasSubstr("a scale for each row")));

  Made integers(WeightFormat::kBf16);
  for (Written& tensor : integers.tensors) tensor.type = "I16";
  EXPECT_EQ(integers.refused().code, ErrorCode::kUnsupported);
  EXPECT_THAT(integers.refused().message, HasSubstr("I16"));

  Made gptq(WeightFormat::kBf16);
  for (Written& tensor : gptq.tensors)
    tensor.name.replace(tensor.name.rfind("weight"), strlen("weight"), "qweight");
  EXPECT_EQ(gptq.refused().code, ErrorCode::kUnsupported);
  EXPECT_THAT(gptq.refused().hint, HasSubstr("GPTQ"));
}

TEST(ExpertWeightsRefused, ABlockGridThatDoesNotFitTheShape) {
  Made made(WeightFormat::kFp8Block);
  Written& scales = made.tensor("experts.2.up_proj.weight_scale_inv");
  scales.shape = {3, 2};  // Of blocks twice as high.
  scales.bytes.resize(3 * 2 * 4);
  EXPECT_THAT(made.refused().message,
              AllOf(HasSubstr("experts.2.up_proj.weight_scale_inv"), HasSubstr("[3, 2]"),
                    HasSubstr("not [5, 2], a scale for each 128 x 128")));
  Made groups(WeightFormat::kNvfp4);
  Written& half = groups.tensor("experts.0.down_proj.weight_scale");
  half.shape[1] = 3;
  half.bytes.resize(static_cast<size_t>(half.shape[0]) * 3);
  EXPECT_THAT(groups.refused().message, HasSubstr("a scale for each 1 x 16"));
}

TEST(ExpertWeightsRefused, BiasesThatTheConfigDoesNotKnow) {
  Made made(WeightFormat::kBf16);
  made.tensors.push_back({"model.layers.3.mlp.experts.0.up_proj.bias", "BF16", {1}, "xx"});
  EXPECT_THAT(made.refused().message, HasSubstr("experts.0.up_proj.bias"));
}

/// A layer whose part of that name holds `value` in one place.
Error with_value(WeightFormat format, const std::string& part, const std::string& value,
                 Style style = Style::kProjections) {
  Made made(format, style);
  std::string& bytes = made.tensor(part).bytes;
  bytes.replace(bytes.size() - value.size(), value.size(), value);
  // Stacked experts: the last one has it.
  auto weights = made.source();
  EXPECT_TRUE(weights.ok()) << weights.error().message;
  if (!weights.ok()) return weights.error();
  const int64_t expert = style == Style::kGptOss ? 6 : 0;
  auto chunk = (*weights)->chunk(expert);
  EXPECT_FALSE(chunk.ok()) << part;
  return chunk.ok() ? Error{} : chunk.error();
}

TEST(ExpertWeightsRefused, ScalesThatAreNaNInfiniteOrNegativeNameFileAndTensor) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  const auto f32 = [](float value) { return bytes_of<float>({value}); };
  const std::string e4m3 = "experts.0.gate_proj.weight_scale";
  struct {
    Error error;
    const char* tensor;
    const char* problem;
  } const cases[] = {
      {with_value(kNvfp4, e4m3, "\x7F"), "gate_proj.weight_scale", "[71, 1] is NaN"},
      {with_value(kNvfp4, e4m3, "\xFF"), "gate_proj.weight_scale", "is NaN"},
      {with_value(kNvfp4, e4m3, "\x81"), "gate_proj.weight_scale", "is negative"},
      {with_value(kNvfp4, "experts.0.up_proj.weight_scale_2", f32(nan)), "up_proj.weight_scale_2",
       "is NaN"},
      {with_value(kNvfp4, "experts.0.down_proj.weight_scale_2", f32(-1)),
       "down_proj.weight_scale_2", "is negative"},
      {with_value(kNvfp4, "experts.0.up_proj.weight_global_scale", f32(0), Style::kCompressed),
       "up_proj.weight_global_scale", "is infinite"},
      {with_value(kMxfp4, "experts.0.down_proj.weight_scale", "\xFF"), "down_proj.weight_scale",
       "is NaN"},
      {with_value(kMxfp4, "mlp.experts.gate_up_proj_scales", "\xFF", Style::kGptOss),
       "gate_up_proj_scales", "is NaN"},
      {with_value(kFp8, "experts.0.gate_proj.weight_scale", f32(infinite)),
       "gate_proj.weight_scale", "is infinite"},
      {with_value(kFp8Block, "experts.0.up_proj.weight_scale_inv", f32(nan)),
       "up_proj.weight_scale_inv", "is NaN"},
      {with_value(kFp8Block, "experts.0.down_proj.weight_scale_inv", f32(-0.5f)),
       "down_proj.weight_scale_inv", "is negative"},
      {with_value(kBf16, "mlp.experts.down_proj_bias", "\x80\x7F", Style::kGptOss),
       "down_proj_bias", "is NaN or infinite"},
  };
  for (const auto& [error, tensor, problem] : cases) {
    EXPECT_EQ(error.code, ErrorCode::kParse) << error.message;
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("model.safetensors"), HasSubstr(tensor), HasSubstr(problem)));
  }
}

TEST(ExpertWeightsRefused, ASpecificationOfAnotherModel) {
  Made made(WeightFormat::kBf16);
  made.spec.hidden = 64;
  EXPECT_EQ(made.refused().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.refused().message, AllOf(HasSubstr("64 hidden"), HasSubstr("48 hidden")));
}

TEST(ExpertWeightsRefused, AShareThatSplitsABlockSaysWhereBlocksAre) {
  Made made(WeightFormat::kFp8Block);
  made.spec.tp = 4;
  made.spec.intermediate = 160;  // Of 576: a block and a quarter.
  const Error error = made.refused();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("rank 0 of tp 4"), HasSubstr("256"),
                                   HasSubstr("blocks of 128"), HasSubstr("says 160")));
}

// Memory: not all of a layer, whichever way its experts are stored.
class ExpertWeightsMemory : public testing::TestWithParam<Style> {};

int64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  status >> pages >> resident;
  return resident * 4096;
}

TEST_P(ExpertWeightsMemory, OneExpertIsInMemoryAtATime) {
  ModelSpec model = small_model(WeightFormat::kBf16, GetParam());
  model.hidden = 512;
  model.intermediate = 1024;
  model.experts = 24;
  const FusedMoeSpec spec = whole(model);
  const Folder folder;
  {
    const auto random = std::move(make_random_weights(spec, DataKind::kRealistic, 1)).value();
    folder.write("model.safetensors",
                 safetensors(CheckpointMaker(spec, GetParam()).tensors(*random)));
  }
  std::shared_ptr<Checkpoint> checkpoint = std::move(Checkpoint::open(folder.path())).value();
  const auto weights = std::move(make_expert_weights(checkpoint, model, kLayer, spec, 0)).value();
  const int64_t before = resident_bytes();
  int64_t most = 0;
  uint64_t sum = 0;
  for (int64_t expert = 0; expert < spec.experts; ++expert) {
    const Tensors chunk = weights->chunk(expert).value();
    for (const Tensor& tensor : chunk) {
      for (size_t at = 0; at < tensor.bytes(); at += 64) sum += tensor.as<uint8_t>()[at];
    }
    most = std::max(most, resident_bytes() - before);
  }
  EXPECT_GT(sum, 0u);
  // An expert as it is stored, and as it is put together; pages are read in larger pieces.
  EXPECT_LT(most, 3 * expert_weight_bytes(spec) + (1 << 20)) << "of 24 experts";
}

INSTANTIATE_TEST_SUITE_P(Styles, ExpertWeightsMemory,
                         testing::Values(Style::kProjections, Style::kRows, Style::kGptOss),
                         [](const auto& style) {
                           return std::string(testing_checkpoint::to_string(style.param));
                         });

}  // namespace
}  // namespace moetune::checkpoint

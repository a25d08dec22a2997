// From a name or path to a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "model/configs.h"
#include "model/model_spec.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class LoadModel : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("moetune_model_" + std::to_string(getpid()));
    fs::create_directories(folder_ / "my-model");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static Error error_of(const std::string& name) {
    const auto spec = load_model(name);
    EXPECT_FALSE(spec.ok()) << name;
    return spec.ok() ? Error{} : spec.error();
  }

  fs::path folder_;
};

TEST_F(LoadModel, TakesAFolderOrItsConfig) {
  const std::string config = write("my-model/config.json", qwen3_moe_config().dump());
  for (const std::string& name :
       {config, (folder_ / "my-model").string(), (folder_ / "my-model/").string()}) {
    const auto spec = load_model(name);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->name, "my-model");
    EXPECT_EQ(spec->origin, config);
    EXPECT_EQ(spec->weights, WeightFormat::kBf16);
  }
}

TEST_F(LoadModel, ReadsTheQuantisersFileBesideTheConfig) {
  write("my-model/config.json", qwen3_moe_config().dump());
  write("my-model/hf_quant_config.json",
        R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16}})");
  EXPECT_EQ(load_model((folder_ / "my-model").string())->weights, WeightFormat::kNvfp4);
  write("my-model/hf_quant_config.json", "{");
  EXPECT_THAT(error_of((folder_ / "my-model").string()).message, HasSubstr("hf_quant_config.json"));
}

TEST_F(LoadModel, SuggestsThePresetThatIsSpelledMostLikeIt) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"qwen3-30b", "qwen3-30b-a3b"},          {"qwen3-30b-a3", "qwen3-30b-a3b"},
      {"Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"}, {"gptoss-20b", "gpt-oss-20b"},
      {"deepseekv3", "deepseek-v3"},           {"mixtral8x7b", "mixtral-8x7b"},
      {"gpt-oss-120", "gpt-oss-120b"}};
  for (const auto& [typed, meant] : cases) {
    const Error error = error_of(typed);
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_THAT(error.hint, StartsWith(std::string("did you mean ") + meant + "?")) << typed;
  }
  EXPECT_THAT(error_of("something/else/entirely").hint, StartsWith("MODEL is"))
      << "no far-fetched suggestion";
  EXPECT_THAT(error_of("").hint, HasSubstr("preset"));
}

TEST_F(LoadModel, SaysWhatIsWrongWithAPath) {
  fs::create_directory(folder_ / "empty");
  const Error empty = error_of((folder_ / "empty").string());
  EXPECT_EQ(empty.code, ErrorCode::kNotFound);
  EXPECT_THAT(empty.message, HasSubstr("without config.json"));

  const std::string text = write("weights.bin", "not json at all");
  EXPECT_EQ(error_of(text).code, ErrorCode::kParse);
  EXPECT_THAT(error_of(text).message, HasSubstr(text));

  const std::string huge = write("huge.json", "{");
  fs::resize_file(huge, uintmax_t{3} << 30);
  EXPECT_THAT(error_of(huge).message, HasSubstr("larger than"));

  EXPECT_FALSE(load_model(std::string(5000, 'x')).ok()) << "longer than any path may be";
  EXPECT_FALSE(load_model("/dev/zero").ok()) << "endless";
}

TEST_F(LoadModel, SaysThatAFileCannotBeRead) {
  const std::string path = write("secret.json", "{}");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  if (access(path.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  EXPECT_EQ(error_of(path).code, ErrorCode::kIo);
}

}  // namespace
}  // namespace moetune

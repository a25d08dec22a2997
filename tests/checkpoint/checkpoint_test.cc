// Folders of one file or of many, and what is missing from them.
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"

namespace moetune::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_checkpoint::Folder;
using testing_checkpoint::safetensors;

constexpr const char* kIndex = "model.safetensors.index.json";

std::unique_ptr<Checkpoint> opened(const Folder& folder) {
  auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  return checkpoint.ok() ? std::move(*checkpoint) : nullptr;
}

Error refused_index(const std::string& text) {
  const Folder folder;
  folder.write(kIndex, text);
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_FALSE(checkpoint.ok()) << text;
  if (checkpoint.ok()) return {};
  EXPECT_THAT(checkpoint.error().message, HasSubstr(kIndex));
  return checkpoint.error();
}

TEST(Checkpoint, OneFileNeedsNoIndex) {
  const Folder folder;
  folder.write("model.safetensors", safetensors({{"a.x", "U8", {2}, "ab"}}));
  const auto checkpoint = opened(folder);
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_TRUE(checkpoint->has("a.x"));
  EXPECT_TRUE(checkpoint->has_any("a."));
  EXPECT_FALSE(checkpoint->has_any("b"));
  const auto tensor = checkpoint->find("a.x");
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ((*tensor)->name, "a.x");
  const auto none = checkpoint->find("a.y");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("\"a.y\""));
}

TEST(Checkpoint, OpensOnlyTheFilesThatAreAskedFor) {
  const Folder folder;
  folder.write("one.safetensors", safetensors({{"x", "U8", {2}, "ab"}}));
  folder.write("two.safetensors", "no such file");
  folder.write(kIndex, R"({"metadata": {"total_size": 4, "more": [1, {"a": null}]},
                           "weight_map": {"x": "one.safetensors", "y": "two.safetensors"}})");
  const auto checkpoint = opened(folder);
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_TRUE(checkpoint->find("x").ok());
  EXPECT_TRUE(checkpoint->has("y"));
  const auto broken = checkpoint->find("y");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, AllOf(HasSubstr("two.safetensors"), HasSubstr("\"y\"")));
  EXPECT_FALSE(checkpoint->find("y").ok()) << "again";
}

TEST(Checkpoint, AMissingFileIsNamedWithTheTensorItShouldHold) {
  const Folder folder;
  folder.write(kIndex, R"({"weight_map": {"x": "model-00007-of-00009.safetensors"}})");
  const auto checkpoint = opened(folder);
  ASSERT_NE(checkpoint, nullptr);
  const auto missing = checkpoint->find("x");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("model-00007-of-00009.safetensors"), HasSubstr("\"x\"")));
}

TEST(Checkpoint, AFileWithoutTheTensorThatTheIndexPromisesIsNamed) {
  const Folder folder;
  folder.write("one.safetensors", safetensors({{"x", "U8", {2}, "ab"}}));
  folder.write(kIndex, R"({"weight_map": {"y": "one.safetensors"}})");
  const auto checkpoint = opened(folder);
  ASSERT_NE(checkpoint, nullptr);
  const auto missing = checkpoint->find("y");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("one.safetensors"), HasSubstr("\"y\""), HasSubstr(kIndex)));
}

TEST(Checkpoint, AFolderWithoutWeightsSaysWhatIsLookedFor) {
  const Folder folder;
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(checkpoint.error().message, AllOf(HasSubstr(kIndex), HasSubstr("model.safetensors")));
}

TEST(Checkpoint, AnIndexThatMakesNoSenseIsRefused) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": 1})",
        R"({"weight_map": {"x": 1}})", R"({"weight_map": {"x": null}})",
        R"({"weight_map": {"x": {"y": "z"}}})", R"({"weight_map": {"x": "a", "x": "b"}})"}) {
    EXPECT_EQ(refused_index(text).code, ErrorCode::kParse) << text;
  }
}

TEST(Checkpoint, AnIndexMayNotNameFilesOutsideOfItsFolder) {
  for (const char* file : {"../model.safetensors", "/etc/passwd", "a/b", "..", ".", ""}) {
    EXPECT_THAT(refused_index(R"({"weight_map": {"x": ")" + std::string(file) + "\"}}").message,
                HasSubstr("no name of a file"))
        << file;
  }
}

}  // namespace
}  // namespace moetune::checkpoint

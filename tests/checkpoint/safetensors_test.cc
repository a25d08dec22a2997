// What a safetensors file says, and every way in which one can say what is not so.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "checkpoint/checkpoint_testing.h"

namespace moetune::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_checkpoint::bytes_of;
using testing_checkpoint::file_of;
using testing_checkpoint::Folder;
using testing_checkpoint::length_prefix;
using testing_checkpoint::safetensors;

std::unique_ptr<const SafetensorsFile> opened(const std::string& path) {
  auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok()) << file.error().message;
  return file.ok() ? std::move(*file) : nullptr;
}

/// The error of a file of that content; it must name the file.
Error refused(const std::string& content) {
  const Folder folder;
  const auto file = SafetensorsFile::open(folder.write("bad.safetensors", content));
  EXPECT_FALSE(file.ok());
  if (file.ok()) return {};
  EXPECT_THAT(file.error().message, HasSubstr("bad.safetensors"));
  return file.error();
}

std::string refused_header(const std::string& header, size_t data_bytes = 4) {
  return refused(file_of(header, std::string(data_bytes, 'x'))).message;
}

TEST(Safetensors, ReadsEveryTensorsTypeShapeAndBytes) {
  const Folder folder;
  const auto file = opened(
      folder.write("a.safetensors", safetensors({{"x", "BF16", {2, 3}, std::string("abcdefghijkl")},
                                                 {"empty", "F32", {0, 7}, ""},
                                                 {"one", "F32", {}, bytes_of<float>({2.5f})}})));
  ASSERT_NE(file, nullptr);
  const StoredTensor* x = file->find("x");
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->type, "BF16");
  EXPECT_THAT(x->shape, ElementsAre(2, 3));
  EXPECT_EQ(std::memcmp(x->bytes.data(), "abcdefghijkl", 12), 0);
  ASSERT_NE(file->find("empty"), nullptr);
  EXPECT_TRUE(file->find("empty")->bytes.empty());
  ASSERT_NE(file->find("one"), nullptr);
  EXPECT_THAT(file->find("one")->shape, IsEmpty());
  EXPECT_EQ(file->find("y"), nullptr);
  EXPECT_EQ(file->tensors().size(), 3u) << "__metadata__ is no tensor";
}

TEST(Safetensors, AHeaderMayBePaddedAndAFileWithoutTensorsIsOne) {
  const Folder folder;
  const auto file = opened(
      folder.write("a.safetensors",
                   file_of(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}    )", "abc")));
  ASSERT_NE(file, nullptr);
  EXPECT_NE(file->find("x"), nullptr);
  EXPECT_NE(opened(folder.write("none.safetensors", file_of("{}", ""))), nullptr);
}

TEST(Safetensors, TypesThatAreNotReadAreListedAllTheSame) {
  const Folder folder;
  const auto file = opened(
      folder.write("a.safetensors", safetensors({{"wide", "F64", {1}, std::string(8, 'x')},
                                                 {"new", "F9_E9M9", {5}, std::string(3, 'x')}})));
  ASSERT_NE(file, nullptr);
  EXPECT_NE(file->find("wide"), nullptr);
  ASSERT_NE(file->find("new"), nullptr) << "how large it should be is not known";
  EXPECT_EQ(file->find("new")->type, "F9_E9M9");
}

TEST(Safetensors, FieldsOfANewerFormatArePassedOver) {
  const Folder folder;
  EXPECT_NE(opened(folder.write("a.safetensors",
                                file_of(R"({"x":{"note":{"a":[1,{"b":null}]},"dtype":"U8",)"
                                        R"("shape":[3],"data_offsets":[0,3],"f":1.5}})",
                                        "abc"))),
            nullptr);
}

TEST(Safetensors, AFileThatIsNotThereIsNotFound) {
  const Folder folder;
  const auto file = SafetensorsFile::open(folder.path("none.safetensors"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(SafetensorsFile::open(folder.path()).ok()) << "a folder";
}

TEST(Safetensors, ATruncatedFileIsRefused) {
  EXPECT_THAT(refused("").message, HasSubstr("too few"));
  EXPECT_THAT(refused("1234567").message, HasSubstr("too few"));
  const std::string whole = safetensors({{"x", "U8", {64}, std::string(64, 'x')}});
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(refused(whole.substr(0, size)).code, ErrorCode::kParse) << size << " bytes";
  EXPECT_THAT(refused(whole.substr(0, whole.size() - 1)).message,
              AllOf(HasSubstr("\"x\""), HasSubstr("[0, 64]"), HasSubstr("63 bytes of data")));
}

TEST(Safetensors, AHeaderOfAnImpossibleLengthIsRefused) {
  EXPECT_THAT(refused(length_prefix(100) + "{}").message, HasSubstr("claims 100 bytes"));
  EXPECT_THAT(refused(length_prefix(kMaxHeaderBytes + 1) + "{}").message, HasSubstr("allows"));
  EXPECT_THAT(refused(length_prefix(~uint64_t{0}) + "{}").message, HasSubstr("allows"));
  EXPECT_THAT(refused(length_prefix(0)).message, HasSubstr("header"));
}

TEST(Safetensors, AGitLfsPointerSaysWhatToDo) {
  const Error error = refused("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n");
  EXPECT_THAT(error.message, HasSubstr("Git LFS"));
  EXPECT_THAT(error.hint, HasSubstr("git lfs pull"));
}

TEST(Safetensors, AHeaderThatIsNoJsonObjectIsRefused) {
  for (const char* header : {"", " ", "{", "[]", "1", "null", "\"x\"", "{}{}", "{\"x\":}",
                             "{\"\xFF\":1}", "{\"x\":{\"dtype\":\"U8\"}"}) {
    EXPECT_THAT(refused_header(header), HasSubstr("header")) << header;
  }
  std::string deep = R"({"x":{"y":)";
  for (int i = 0; i < 100000; ++i) deep += '[';
  EXPECT_THAT(refused_header(deep), HasSubstr("deep"));
}

TEST(Safetensors, AnEntryOfTheWrongKindIsNamed) {
  for (const char* entry :
       {"1", "null", "[1]", "\"U8\"", R"({"dtype":1,"shape":[4],"data_offsets":[0,4]})",
        R"({"dtype":{},"shape":[4],"data_offsets":[0,4]})",
        R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})",
        R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})",
        R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})",
        R"({"dtype":"U8","shape":[[4]],"data_offsets":[0,4]})",
        R"({"dtype":"U8","shape":["4"],"data_offsets":[0,4]})",
        R"({"dtype":"U8","shape":null,"data_offsets":[0,4]})",
        R"({"dtype":"U8","shape":[4],"data_offsets":[0]})",
        R"({"dtype":"U8","shape":[4],"data_offsets":[0,2,4]})",
        R"({"dtype":"U8","shape":[4],"data_offsets":{"a":0}})", R"({"shape":[4]})",
        R"({"dtype":"U8","data_offsets":[0,4]})", R"({"dtype":"U8","shape":[4]})", "{}"}) {
    EXPECT_THAT(refused_header(std::string(R"({"some.weight":)") + entry + "}"),
                HasSubstr("some.weight"))
        << entry;
  }
}

TEST(Safetensors, OffsetsBeyondTheFileAreRefused) {
  for (const char* offsets : {"[0,5]", "[5,5]", "[4,2]", "[0,18446744073709551615]",
                              "[18446744073709551615,18446744073709551615]"}) {
    EXPECT_THAT(refused_header(std::string(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":)") +
                               offsets + "}}"),
                AllOf(HasSubstr("\"x\""), HasSubstr("data_offsets")))
        << offsets;
  }
}

TEST(Safetensors, ASizeThatIsNotTheShapesIsRefused) {
  for (const char* shape :
       {"[3]", "[5]", "[]", "[0]", "[4294967296,4294967296]", "[9223372036854775808]",
        "[18446744073709551615,18446744073709551615,18446744073709551615]",
        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]"}) {
    EXPECT_THAT(refused_header(std::string(R"({"x":{"dtype":"U8","data_offsets":[0,4],"shape":)") +
                               shape + "}}"),
                HasSubstr("\"x\""))
        << shape;
  }
  EXPECT_THAT(refused_header(R"({"x":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})"),
              AllOf(HasSubstr("takes 16 bytes"), HasSubstr("hold 4")))
      << "another type";
  EXPECT_THAT(refused_header(R"({"x":{"dtype":"F4","shape":[7],"data_offsets":[0,4]}})"),
              HasSubstr("no whole number of"));
}

TEST(Safetensors, OverlapsAndHolesAndLooseEndsAreRefused) {
  const std::string a = R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]})";
  EXPECT_THAT(refused_header("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})"),
              AllOf(HasSubstr("overlap"), HasSubstr("\"a\""), HasSubstr("\"b\"")));
  EXPECT_THAT(
      refused_header("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})", 5),
      AllOf(HasSubstr("no tensor's"), HasSubstr("\"b\"")));
  EXPECT_THAT(refused_header("{" + a + "}"), HasSubstr("take 3 bytes"));
  EXPECT_THAT(refused_header("{" + a + "," + a + "}", 3),
              AllOf(HasSubstr("twice"), HasSubstr("\"a\"")));
}

TEST(Safetensors, ANameIsShownOnOneLineAndNotEndlessly) {
  const std::string message =
      refused_header(R"({"x\n\u001b[31m)" + std::string(5000, 'y') + R"(":1})");
  EXPECT_LT(message.size(), 500u);
  EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
}

// Every byte of the header, and the length before it, turned into others.
TEST(Safetensors, NoChangedByteIsReadOutOfBounds) {
  const std::string whole = safetensors(
      {{"a", "BF16", {2, 3}, std::string(12, 'x')}, {"b", "F32", {2}, std::string(8, 'y')}});
  const Folder folder;
  Random random(1);
  size_t touched = 0;
  for (size_t at = 0; at < whole.size() - 20; ++at) {
    for (int i = 0; i < 5; ++i) {
      std::string changed = whole;
      changed[at] = static_cast<char>(i < 4 ? "09\"]"[i] : random.below(256));
      const auto file = SafetensorsFile::open(folder.write("a.safetensors", changed));
      if (!file.ok()) continue;
      for (const StoredTensor& tensor : (*file)->tensors()) {
        for (std::byte byte : tensor.bytes) touched += std::to_integer<size_t>(byte);
      }
    }
  }
  EXPECT_GT(touched, 0u) << "some changes are harmless";
}

}  // namespace
}  // namespace moetune::checkpoint

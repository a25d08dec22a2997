// How the values of flags are read.
#include "cli/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune::cli {
namespace {

using ::testing::ElementsAre;

TEST(Tokens, AreAListOrARangeOfPowersOfTwoOrBoth) {
  EXPECT_THAT(*parse_tokens("1,64,4096"), ElementsAre(1, 64, 4096));
  EXPECT_THAT(*parse_tokens("64,1"), ElementsAre(1, 64));
  EXPECT_THAT(*parse_tokens("1..8"), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(*parse_tokens("3..20"), ElementsAre(3, 4, 8, 16, 20));
  EXPECT_THAT(*parse_tokens("5..5"), ElementsAre(5));
  EXPECT_THAT(*parse_tokens("5..7"), ElementsAre(5, 7));
  EXPECT_THAT(*parse_tokens("1..4,100"), ElementsAre(1, 2, 4, 100));
  EXPECT_EQ(parse_tokens("1..1024")->size(), 11u);
  EXPECT_EQ(parse_tokens("1048576")->front(), kMaxTokens);
}

TEST(Tokens, ThatMakeNoSenseAreRefused) {
  for (const char* text : {"", "8..4", "0", "-1", "1,", ",1", "x", "1..", "..8", "1..2..3", "1e3",
                           " 1", "1048577", "99999999999999999999", "2,2", "1..4,2"}) {
    const auto tokens = parse_tokens(text);
    ASSERT_FALSE(tokens.ok()) << text;
    EXPECT_EQ(tokens.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(tokens.error().hint.empty());
  }
}

TEST(Durations, HaveUnits) {
  EXPECT_DOUBLE_EQ(*parse_duration("--budget", "60"), 60);
  EXPECT_DOUBLE_EQ(*parse_duration("--budget", "1.5s"), 1.5);
  EXPECT_DOUBLE_EQ(*parse_duration("--budget", "500ms"), 0.5);
  EXPECT_DOUBLE_EQ(*parse_duration("--budget", "2m"), 120);
  EXPECT_DOUBLE_EQ(*parse_duration("--budget", "1h"), 3600);
  for (const char* text :
       {"", "s", "0", "0.0001ms", "-1s", "nan", "inf", "1d", "1 s", "1e5s", "169h"}) {
    EXPECT_FALSE(parse_duration("--budget", text).ok()) << text;
  }
}

TEST(Bytes, HaveUnitsOfTwoKinds) {
  EXPECT_EQ(*parse_bytes("--memory", "1000"), 1000u);
  EXPECT_EQ(*parse_bytes("--memory", "8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(*parse_bytes("--memory", "1.5MiB"), 1536u << 10);
  EXPECT_EQ(*parse_bytes("--memory", "2GB"), 2000000000u);
  for (const char* text : {"", "0", "0.5", "-1GiB", "GiB", "1gib", "nan", "1e20GiB", "99999TiB"}) {
    EXPECT_FALSE(parse_bytes("--memory", text).ok()) << text;
  }
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(0x1p34), "16 GiB");
}

TEST(WholeNumbers, KeepToTheirRange) {
  EXPECT_EQ(*parse_whole("--tp", "8", 1, 8), 8);
  for (const char* text : {"", "0", "9", "-1", "1.0", "1e0", "x", "8 ", "0x8"})
    EXPECT_FALSE(parse_whole("--tp", text, 1, 8).ok()) << text;
  const auto flooded = parse_whole("--tp", std::string(100000, '9'), 1, 8);
  ASSERT_FALSE(flooded.ok());
  EXPECT_LT(flooded.error().message.size(), 200u) << "a message is never as long as what was typed";
}

}  // namespace
}  // namespace moetune::cli

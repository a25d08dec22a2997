#include "exchange/triton_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "exchange/engine_plans.h"

namespace moetune::exchange {
namespace {

using testing::HasSubstr;

constexpr const char* kEntry =
    R"({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1})";

std::string with_entry(const std::string& key, const std::string& entry) {
  return "{\"" + key + "\": " + entry + "}";
}

std::string parse_message(const std::string& text) {
  const auto table = parse_triton_table(text, "t.json");
  if (table.ok()) return "";
  EXPECT_EQ(table.error().code, ErrorCode::kParse);
  return table.error().message;
}

TEST(TritonTable, ReadsEveryKindOfParameter) {
  const auto table = parse_triton_table(
      R"({"triton_version": "3.5.0",
          "64": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1,
                 "waves_per_eu": 0, "USE_TMA": true, "grf_mode": "auto"},
          "1": {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128}})",
      "t.json");
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->triton_version, "3.5.0");
  ASSERT_EQ(table->entries.size(), 2u);
  EXPECT_EQ(table->entries[0].tokens, 64) << "in the order of the file";
  EXPECT_EQ(table->sorted()[0].tokens, 1);
  const Tactic& tactic = table->entries[0].tactic;
  EXPECT_EQ(tactic.number("USE_TMA"), 1);
  EXPECT_EQ(tactic.number("waves_per_eu", 7), 0);
  EXPECT_EQ(tactic.word("grf_mode"), "auto");
}

TEST(TritonTable, TheNearestEntryCountsAndOfTwoTheFirstInTheFile) {
  TritonTable table;
  for (const int64_t tokens : {64, 1, 128}) table.entries.push_back({tokens, {}});
  EXPECT_EQ(table.nearest(1).tokens, 1);
  EXPECT_EQ(table.nearest(33).tokens, 64);
  EXPECT_EQ(table.nearest(32).tokens, 1);
  EXPECT_EQ(table.nearest(96).tokens, 64) << "as near as 128, and before it";
  EXPECT_EQ(table.nearest(1000000).tokens, 128);
  table.entries = {{128, {}}, {64, {}}};
  EXPECT_EQ(table.nearest(96).tokens, 128);
  EXPECT_EQ(table.nearest(std::numeric_limits<int64_t>::max()).tokens, 128);
  EXPECT_EQ(table.nearest(std::numeric_limits<int64_t>::min()).tokens, 64);
}

TEST(TritonTable, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(parse_message("nonsense"), HasSubstr("t.json"));
  EXPECT_THAT(parse_message("[]"), HasSubstr("expected an object, found an array"));
  EXPECT_THAT(parse_message("{}"), HasSubstr("no number of tokens"));
  EXPECT_THAT(parse_message(R"({"triton_version": "3.4.0"})"), HasSubstr("no number of tokens"));
  EXPECT_THAT(parse_message(R"({"triton_version": 3})"), HasSubstr("triton_version"));
  for (const char* key : {"many", "0", "-4", "1.5", "64 ", "", "99999999999999999999"})
    EXPECT_THAT(parse_message(with_entry(key, kEntry)), HasSubstr("no number of tokens")) << key;
  EXPECT_THAT(parse_message(std::string("{\"64\": ") + kEntry + ", \"064\": " + kEntry + "}"),
              HasSubstr("64 tokens are there twice"));
  EXPECT_THAT(parse_message(with_entry("64", "[]")), HasSubstr("\"64\": expected an object"));
  EXPECT_THAT(parse_message(with_entry("64", R"({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_K": 16})")),
              HasSubstr("BLOCK_SIZE_N is missing"));
}

TEST(TritonTable, SaysWhichValueMakesNoSense) {
  for (const char* value : {"-16", "0", "16.5", "\"16\"", "null", "[16]", "99999999999"}) {
    EXPECT_THAT(parse_message(with_entry("64", std::string("{\"BLOCK_SIZE_M\": ") + value + "}")),
                HasSubstr("\"64\".BLOCK_SIZE_M: expected a positive integer"))
        << value;
  }
  EXPECT_THAT(parse_message(with_entry("64", R"({"num_warps": 0})")), HasSubstr("num_warps"));
  EXPECT_THAT(parse_message(with_entry("64", R"({"kpack": -1})")), HasSubstr("kpack"));
}

TEST(TritonTable, AHugeOrMissingFileIsNotRead) {
  const std::string path = testing::TempDir() + "/huge_table.json";
  std::ofstream(path) << std::string((1 << 20) + 1, ' ');
  const auto huge = read_triton_table(path);
  ASSERT_FALSE(huge.ok());
  EXPECT_THAT(huge.error().message, HasSubstr("larger than"));
  const auto missing = read_triton_table(testing::TempDir() + "/no_such_table.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(TritonTable, WhatIsWrittenIsReadAgain) {
  TritonTable table;
  table.entries = {{1, triton_tactic(16)}, {96, triton_tactic(64)}};
  table.entries[1].tactic.set("SPLIT_K", int64_t{1});
  table.triton_version = "3.4.0";
  const auto text = print_triton_table(table, Engine::kVllm);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto again = parse_triton_table(*text, "again");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, table);
}

TEST(TritonTable, DoesNotWriteWhatTheEnginesKernelWouldEndAt) {
  const auto refused = [](const char* name, ParameterValue value, Engine engine) -> std::string {
    TritonTable table;
    table.entries = {{1, triton_tactic(16)}};
    table.entries[0].tactic.set(name, std::move(value));
    const auto text = print_triton_table(table, engine);
    return text.ok() ? "" : text.error().message;
  };
  EXPECT_THAT(refused("USE_TMA", int64_t{1}, Engine::kVllm), HasSubstr("no parameter USE_TMA"));
  EXPECT_THAT(refused("SPLIT_K", int64_t{1}, Engine::kSglang), HasSubstr("no parameter SPLIT_K"));
  EXPECT_THAT(refused("tile_m", int64_t{1}, Engine::kVllm), HasSubstr("no parameter tile_m"));
  EXPECT_THAT(refused("num_warps", std::string("four"), Engine::kVllm),
              HasSubstr("num_warps=four"));
  EXPECT_EQ(refused("num_ctas", int64_t{1}, Engine::kSglang), "");
  TritonTable bare;
  bare.entries = {{1, {{"BLOCK_SIZE_M", int64_t{16}}}}};
  EXPECT_FALSE(print_triton_table(bare, Engine::kVllm).ok()) << "the kernel needs more";
}

TEST(TritonTable, ASwitchIsWrittenAsOne) {
  TritonTable table;
  table.entries = {{1, triton_tactic(16)}};
  table.entries[0].tactic.set("USE_TMA", int64_t{1});
  const auto text = print_triton_table(table, Engine::kSglang);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("\"USE_TMA\": true"));
}

TEST(TritonTable, IsKnownByItsContent) {
  EXPECT_TRUE(looks_like_triton_table(with_entry("64", kEntry)));
  EXPECT_TRUE(looks_like_triton_table(with_entry("many", kEntry))) << "wrong, but meant as one";
  EXPECT_FALSE(looks_like_triton_table(R"({"format": 1, "plans": []})"));
  EXPECT_FALSE(looks_like_triton_table("\xff{"));
}

}  // namespace
}  // namespace moetune::exchange

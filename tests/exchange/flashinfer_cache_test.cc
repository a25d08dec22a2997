#include "exchange/flashinfer_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exchange/python_text.h"

namespace moetune::exchange {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PythonText, ReadsWhatTuplesOfTheCacheHold) {
  const auto value = parse_python_text(
      R"(('trtllm::fused_moe::gemm1', "It's", ((1, 3584), (0,), ()), [torch.bfloat16, None, True, -1, 1.5, 'a\'b']))");
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(
      value->dump(),
      R"(["trtllm::fused_moe::gemm1","It's",[[1,3584],[0],[]],["torch.bfloat16",null,true,-1,1.5,"a'b"]])");
  EXPECT_EQ(parse_python_text("()")->dump(), "[]");
}

TEST(PythonText, RefusesEverythingElse) {
  for (const char* text :
       {"", "(", "(1", "(1 2)", "(1,,2)", "1 2", "'a", "'a\\n'", "'\\", "99999999999999999999",
        "nan(", "1e999", "--1", "{1: 2}", "f(1)", "<E.A: 1>", "(1,)x", ")"}) {
    const auto value = parse_python_text(text);
    EXPECT_FALSE(value.ok()) << text;
    if (value.ok()) continue;
    EXPECT_THAT(value.error().message, HasSubstr("column"));
  }
}

TEST(PythonText, HasALimitOnDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '(') + "1" + std::string(depth, ')');
  };
  EXPECT_FALSE(parse_python_text(nested(17)).ok());
  EXPECT_FALSE(parse_python_text(std::string(1000000, '(')).ok());
  EXPECT_TRUE(parse_python_text(nested(16)).ok());
}

constexpr const char* kCache = R"json({
  "_metadata": {"flashinfer_version": "0.7.4", "gpu": "NVIDIA H200", "cudnn_version": null},
  "_records": {"x": {}},
  "('fused_moe', 'MoERunner', ((8, 4096), (0,)), (torch.bfloat16, True))": ["MoERunner", 5],
  "('fused_moe', 'MoERunner', ((16, 4096), (0,)), ())": ["MoERunner", -1, ["auto", false]],
  "('fused_moe', 'CuteRunner', ((16, 4096),))": ["CuteRunner", [128, [1, 2], true]],
  "something else": ["Other", 1],
  "_generation": "abc"
})json";

TEST(FlashinferCache, ReadsEntriesAndWhatTheyWereMadeWith) {
  const auto cache = parse_flashinfer_cache(kCache, "cache.json");
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  EXPECT_EQ(cache->metadata.at("gpu"), "NVIDIA H200");
  EXPECT_EQ(cache->metadata.at("cudnn_version"), "null");
  ASSERT_EQ(cache->entries.size(), 4u);
  const auto& first = cache->entries[0];
  EXPECT_EQ(first.op, "fused_moe");
  EXPECT_EQ(first.runner, "MoERunner");
  EXPECT_THAT(first.shapes, ElementsAre(ElementsAre(8, 4096), ElementsAre(0)));
  EXPECT_EQ(first.extras.dump(), R"(["torch.bfloat16",true])");
  EXPECT_FALSE(first.is_fallback());
  EXPECT_TRUE(cache->entries[1].is_fallback());
  EXPECT_EQ(cache->entries[2].tactic.dump(), "[128,[1,2],true]");
  EXPECT_TRUE(cache->entries[2].extras.empty());
}

TEST(FlashinferCache, AKeyThatCannotBeReadIsKeptAsItIs) {
  const auto cache = parse_flashinfer_cache(kCache, "cache.json");
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(cache->entries[3].key, "something else");
  EXPECT_FALSE(cache->entries[3].unreadable.empty());
  EXPECT_EQ(cache->entries[3].op, "");
  const auto odd = parse_flashinfer_cache(R"json({"('a', 'b', 3)": ["b", 1]})json", "c");
  ASSERT_TRUE(odd.ok());
  EXPECT_THAT(odd->entries[0].unreadable, HasSubstr("shapes"));
}

TEST(FlashinferCache, SaysWhatIsWrongAndWhere) {
  const auto message = [](const char* text) {
    const auto cache = parse_flashinfer_cache(text, "c.json");
    return cache.ok() ? std::string() : cache.error().message;
  };
  EXPECT_THAT(message("nonsense"), HasSubstr("c.json"));
  EXPECT_THAT(message("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(message(R"({"_metadata": 3})"), HasSubstr("_metadata"));
  for (const char* value : {"3", "[]", R"(["a"])", R"([1, 2])", R"(["a", {"b": 1}])"})
    EXPECT_THAT(message((std::string(R"({"key": )") + value + "}").c_str()),
                HasSubstr("\"key\": expected [runner, tactic]"))
        << value;
}

TEST(FlashinferCache, IsKnownByItsContent) {
  EXPECT_TRUE(looks_like_flashinfer_cache(kCache));
  EXPECT_TRUE(looks_like_flashinfer_cache(R"json({"('a', 'b', ((1,),), ())": 3})json"));
  EXPECT_FALSE(looks_like_flashinfer_cache(R"({"_metadata": {"version": 1}})"));
  EXPECT_FALSE(looks_like_flashinfer_cache(R"({"format": 1})"));
}

}  // namespace
}  // namespace moetune::exchange

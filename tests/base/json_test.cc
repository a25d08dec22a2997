#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace moetune {
namespace {

Json parsed(const std::string& text) {
  auto json = parse_json(text, "test");
  EXPECT_TRUE(json.ok()) << (json.ok() ? "" : json.error().message);
  return json.ok() ? *json : Json();
}

std::string parse_error(const std::string& text, JsonLimits limits = {}) {
  const auto json = parse_json(text, "file.json", limits);
  EXPECT_FALSE(json.ok()) << text;
  if (json.ok()) return {};
  EXPECT_EQ(json.error().code, ErrorCode::kParse);
  EXPECT_TRUE(json.error().message.starts_with("file.json: ")) << json.error().message;
  return json.error().message;
}

TEST(Json, MalformedTextIsAnErrorWithItsPlace) {
  EXPECT_NE(parse_error("{\n  \"a\": ,\n}").find("line 2"), std::string::npos);
  EXPECT_NE(parse_error("").find("empty"), std::string::npos);
  EXPECT_NE(parse_error(" \n").find("empty"), std::string::npos);
  parse_error("{\"a\": 1");
  parse_error("{\"a\": NaN}");
  parse_error("{\"a\": 1e999}");
  parse_error("\"\xff\xfe\"");
  parse_error("{} {}");
}

TEST(Json, DepthAndSizeHaveLimits) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_NE(parse_error(deep).find("64 levels"), std::string::npos);
  parsed(std::string(64, '[') + std::string(64, ']'));
  parsed("\"" + std::string(1000, '[') + "\\\"[[[\"");  // Brackets in a string do not nest.
  EXPECT_NE(parse_error("[1,2,3]", {.max_bytes = 5}).find("7 bytes"), std::string::npos);
}

TEST(Json, AnObjectHasALimitOfMembersAsReadingItTakesTheirSquare) {
  const JsonLimits two = {.max_members = 2};
  EXPECT_NE(parse_error(R"([{"a":1,"b":{},"c":3}])", two).find("2 members"), std::string::npos);
  EXPECT_TRUE(parse_json(R"({"a":{"b":1,"c":2},"d":[1,2,3,{"e":"f:g,:h"}]})", "", two).ok());
  std::string many = "{";
  for (int i = 0; i < 300'000; ++i) many += "\"" + std::to_string(i) + "\":0,";
  EXPECT_NE(parse_error(many + "\"\":0}").find("members"), std::string::npos);
}

TEST(Json, PrintingKeepsTheOrderOfKeysAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(print_json_line(parsed("{\"z\": 1, \"a\": 2}")), "{\"z\":1,\"a\":2}");
  EXPECT_EQ(print_json(parsed("{\"z\": 1}")), "{\n  \"z\": 1\n}\n");
  EXPECT_EQ(print_json_line(Json("\xff")), "\"\xEF\xBF\xBD\"");
}

TEST(Json, AReaderNamesThePlaceOfAWrongType) {
  const Json json = parsed(R"({"plans": [{"decisions": [{"from": 1}, {"from": "x"}]}]})");
  JsonReader reader(json, "");
  int64_t from = 0;
  reader.objects("plans", 10, [&](JsonReader& plan) {
    plan.objects("decisions", 10, [&](JsonReader& decision) { decision.required("from", from); });
  });
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.error().message,
            "plans[0].decisions[1].from: expected an integer of 64 bits, found a string");
  EXPECT_EQ(from, 1);
}

TEST(Json, AReaderKeepsTheFirstErrorAndReadsNothingAfterIt) {
  const Json json = parsed(R"({"a": true, "b": 2})");
  JsonReader reader(json, "top");
  int64_t a = 7;
  int64_t b = 7;
  reader.required("a", a);
  reader.required("b", b);
  EXPECT_EQ(reader.error().message, "top.a: expected an integer of 64 bits, found true or false");
  EXPECT_EQ(a, 7);
  EXPECT_EQ(b, 7);
}

TEST(Json, NumbersOutsideOfTheirRangeAreRefused) {
  const auto refused = [](const char* text, auto value) {
    const Json json = parsed(text);
    JsonReader reader(json, "");
    reader.optional("a", value);
    return !reader.ok();
  };
  EXPECT_TRUE(refused(R"({"a": 9223372036854775808})", int64_t{0}));
  EXPECT_FALSE(refused(R"({"a": 9223372036854775807})", int64_t{0}));
  EXPECT_TRUE(refused(R"({"a": 2147483648})", 0));
  EXPECT_TRUE(refused(R"({"a": 1.5})", 0));
  EXPECT_FALSE(refused(R"({"a": 1.5})", 0.0));
  EXPECT_FALSE(refused(R"({"a": 3})", 0.0));
  EXPECT_TRUE(refused(R"({"a": null})", 0.0));
}

TEST(Json, MissingFieldsAreErrorsOnlyWhereRequired) {
  const Json json = parsed("{}");
  JsonReader reader(json, "");
  int64_t number = 5;
  reader.optional("a", number);
  reader.optional_object("b", [](JsonReader&) { FAIL(); });
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(number, 5);
  reader.object("c", [](JsonReader&) { FAIL(); });
  EXPECT_EQ(reader.error().message, "c: missing");
}

TEST(Json, ArraysHaveALimitAndHoldObjects) {
  const Json json = parsed(R"({"a": [{}, {}, {}], "b": [{}, 1]})");
  JsonReader few(json, "");
  few.objects("a", 2, [](JsonReader&) { FAIL(); });
  EXPECT_EQ(few.error().message, "a: 3 items; at most 2 are read");
  JsonReader mixed(json, "");
  mixed.objects("b", 2, [](JsonReader&) {});
  EXPECT_EQ(mixed.error().message, "b[1]: expected an object, found an integer");
}

TEST(Json, WhatAnotherVersionWroteIsFoundAndPutBackAtEveryLevel) {
  const Json document = parsed(
      R"({"a": 1, "new": {"x": null}, "list": [{"k": 1}, {"k": 2, "extra": [1, 2]}], "o": {"p": 1, "q": 2}})");
  const Json known = parsed(R"({"a": 1, "list": [{"k": 1}, {"k": 2}], "o": {"p": 1}})");
  const Json unknown = json_unknown(document, known);
  EXPECT_EQ(print_json_line(unknown),
            R"({"new":{"x":null},"list":[null,{"extra":[1,2]}],"o":{"q":2}})");
  Json again = known;
  json_restore(again, unknown);
  EXPECT_EQ(Json::diff(again, document), Json::array());
  EXPECT_TRUE(json_unknown(known, known).is_null());
}

TEST(Json, WhatIsKnownWinsOverWhatIsPutBack) {
  Json document = parsed(R"({"a": 1, "list": [1, 2]})");
  json_restore(document, parsed(R"({"a": 2, "list": [{"x": 1}], "b": 3})"));
  EXPECT_EQ(print_json_line(document), R"({"a":1,"list":[1,2],"b":3})");
}

}  // namespace
}  // namespace moetune

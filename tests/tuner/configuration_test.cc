// The tuned configuration as text: cases 16 and 18.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "moetune/plan.h"
#include "tuner/sample_plans.h"

namespace moetune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TunedConfiguration sample() {
  TunedConfiguration configuration;
  configuration.device = sample_device();
  configuration.put(sample_plan({{1, 0}, {7, 4}, {64, 8}}, sample_problem("8")));
  configuration.put(sample_plan({{64, 2}}, sample_problem("16")));
  return configuration;
}

TunedConfiguration parsed(const std::string& text) {
  auto configuration = TunedConfiguration::from_json(text, "file.json");
  EXPECT_TRUE(configuration.ok()) << (configuration.ok() ? "" : configuration.error().message);
  return configuration.ok() ? *configuration : TunedConfiguration();
}

Error error_of(const std::string& text) {
  const auto configuration = TunedConfiguration::from_json(text, "file.json");
  EXPECT_FALSE(configuration.ok()) << text.substr(0, 200);
  if (configuration.ok()) return {};
  EXPECT_TRUE(configuration.error().message.starts_with("file.json: "))
      << configuration.error().message;
  return configuration.error();
}

std::string message_of(const std::string& text) { return error_of(text).message; }

// The text with `from` replaced once by `to`.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return place == std::string::npos ? text : text.replace(place, from.size(), to);
}

TEST(Configuration, EveryFieldSurvivesARoundTripAndTwoSavesAreTheSameBytes) {
  const TunedConfiguration before = sample();
  const std::string text = before.to_json();
  const TunedConfiguration after = parsed(text);
  EXPECT_EQ(after.device, before.device);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.extra_json, "");
  EXPECT_EQ(after.to_json(), text);
  EXPECT_EQ(before.to_json(), text);
}

TEST(Configuration, APlanSaysThatItWasTunedDeterministicAndOthersAreAsTheyWere) {
  const std::string plain = sample().to_json();
  EXPECT_EQ(plain.find("deterministic"), std::string::npos);
  TunedConfiguration before = sample();
  before.plans[0].deterministic = true;
  const TunedConfiguration after = parsed(before.to_json());
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_FALSE(after.plans[1].deterministic);
  EXPECT_EQ(after.plans[0].extra_json, "") << "the field is known";
  // A file that says of a plan that it was not is the same as one that says nothing.
  const std::string said =
      replaced(plain, "\"max_tokens\": 64", "\"max_tokens\": 64, \"deterministic\": false");
  EXPECT_EQ(parsed(said).to_json(), plain);
  EXPECT_NE(
      message_of(replaced(plain, "\"max_tokens\": 64", "\"max_tokens\": 64, \"deterministic\": 1"))
          .find("plans[0].deterministic"),
      std::string::npos);
}

TEST(Configuration, TheOrderOfPlansIsTheOrderOfTheirKeys) {
  TunedConfiguration one = sample();
  TunedConfiguration other;
  other.device = one.device;
  other.plans = {one.plans[1], one.plans[0]};
  EXPECT_EQ(other.to_json(), one.to_json());
  EXPECT_EQ(parsed(other.to_json()).plans, one.plans);
}

TEST(Configuration, PuttingAPlanReplacesThatOfItsProblemOnly) {
  TunedConfiguration configuration = sample();
  configuration.put(sample_plan({{32, 1}}, sample_problem("8")));
  EXPECT_EQ(configuration.plans.size(), 2u);
  ASSERT_NE(configuration.find(sample_problem("8")), nullptr);
  EXPECT_EQ(configuration.find(sample_problem("8"))->max_tokens, 32);
  EXPECT_EQ(configuration.find(sample_problem("16"))->max_tokens, 64);
  EXPECT_EQ(configuration.find(sample_problem("99")), nullptr);
}

TEST(Configuration, UnknownFieldsSurviveAtEveryLevel) {
  std::string text = sample().to_json();
  text = replaced(text, "\"format\": 1,", "\"format\": 1, \"top\": {\"deep\": [1, null]},");
  text = replaced(text, "\"kind\": \"cpu\",", "\"kind\": \"cpu\", \"in_device\": 2,");
  text = replaced(text, "\"op\": \"moe\",", "\"op\": \"moe\", \"in_problem\": 3,");
  text = replaced(text, "\"layout\": \"plain\",", "\"layout\": \"plain\", \"in_plan\": 4,");
  text = replaced(text, "\"scheme\": \"single\",", "\"scheme\": \"single\", \"in_decision\": 5,");
  text = replaced(text, "\"name\": \"main\",", "\"name\": \"main\", \"in_stage\": 6,");
  text = replaced(text, "\"median_us\": 10.5,", "\"median_us\": 10.5, \"in_time\": 7,");
  text = replaced(text, "\"resolved\": true,", "\"resolved\": true, \"in_evidence\": \"8\",");
  const std::string saved = parsed(text).to_json();
  for (const char* field :
       {"\"top\"", "\"deep\"", "\"in_device\": 2", "\"in_problem\": 3", "\"in_plan\": 4",
        "\"in_decision\": 5", "\"in_stage\": 6", "\"in_time\": 7", "\"in_evidence\": \"8\""}) {
    EXPECT_THAT(saved, HasSubstr(field));
  }
  EXPECT_EQ(parsed(saved).to_json(), saved);
  EXPECT_EQ(parsed(saved).plans, parsed(text).plans);
}

TEST(Configuration, FieldsThatMayBeMissingHaveDefaults) {
  const TunedConfiguration read = parsed(R"({"format": 1, "device": {"kind": "cpu", "identity": {}},
    "plans": [{"problem": {"op": "f", "attributes": {}}, "runner": "r", "layout": "plain",
      "max_tokens": 4, "decisions": [{"tokens": 1, "from": 1, "to": 4, "default": false,
        "runner": "r", "version": 1, "scheme": "single", "stages": []}]}]})");
  ASSERT_EQ(read.plans.size(), 1u);
  EXPECT_EQ(read.plans[0].decisions[0].evidence, Evidence());
}

TEST(Configuration, WrongTypesAreNamedWithTheirPlace) {
  const std::string text = sample().to_json();
  EXPECT_EQ(message_of(replaced(text, "\"to\": 64", "\"to\": \"64\"")),
            "file.json: plans[0].decisions[0].to: expected an integer of 64 bits, found a string");
  EXPECT_THAT(message_of(replaced(text, "\"tile\": 2", "\"tile\": 2.5")),
              HasSubstr("plans[0].decisions[0].stages[0].tactic.tile: expected an integer"));
  EXPECT_THAT(message_of(replaced(text, "\"cores\": \"2\"", "\"cores\": 2")),
              HasSubstr("device.identity.cores: expected a string, found an integer"));
  EXPECT_THAT(message_of(replaced(text, "\"default\": false", "\"default\": 0")),
              HasSubstr("plans[0].decisions[0].default: expected true or false"));
  EXPECT_THAT(message_of(replaced(text, "\"runner\": \"cpu.one\",", "")),
              HasSubstr("plans[0].runner: missing"));
  EXPECT_THAT(message_of(replaced(text, "\"median_us\": 10.5", "\"median_us\": -1")),
              HasSubstr("plans[0].decisions[0].evidence.chosen.median_us: a negative time"));
  EXPECT_THAT(message_of(replaced(text, "\"version\": 1", "\"version\": 4294967297")),
              HasSubstr("plans[0].decisions[0].version: out of range"));
  EXPECT_THAT(message_of("[]"), HasSubstr("expected an object, found an array"));
  EXPECT_THAT(message_of("{}"), HasSubstr("format: missing"));
}

TEST(Configuration, NumbersThatAreNoneAreRefusedOnReadingAndNeverWritten) {
  const std::string text = sample().to_json();
  message_of(replaced(text, "\"median_us\": 10.5", "\"median_us\": NaN"));
  message_of(replaced(text, "\"median_us\": 10.5", "\"median_us\": 1e999"));
  message_of(replaced(text, "\"median_us\": 10.5", "\"median_us\": null"));
  TunedConfiguration configuration = sample();
  configuration.plans[0].decisions[0].evidence.chosen.median_us = std::nan("");
  configuration.plans[0].decisions[0].evidence.speedup = std::numeric_limits<double>::infinity();
  EXPECT_EQ(parsed(configuration.to_json()).plans[0].decisions[0].evidence.chosen.median_us, 0);
}

TEST(Configuration, IntervalsThatDoNotCoverAreNamed) {
  const std::string text = sample().to_json();
  EXPECT_THAT(
      message_of(replaced(text, "\"from\": 2", "\"from\": 1")),
      AllOf(HasSubstr("plans[1]"), HasSubstr("decisions[1]"), HasSubstr("covered already")));
  EXPECT_THAT(message_of(replaced(text, "\"from\": 2", "\"from\": 3")),
              HasSubstr("nothing covers 2..2"));
  EXPECT_THAT(message_of(replaced(text, "\"tokens\": 1", "\"tokens\": 0")),
              HasSubstr("tokens: less than 1"));
  EXPECT_THAT(
      message_of(replaced(text, "\"max_tokens\": 64", "\"max_tokens\": 9223372036854775807")),
      HasSubstr("max_tokens is 9223372036854775807"));
}

TEST(Configuration, TheSameProblemTwiceIsRefused) {
  TunedConfiguration configuration = sample();
  const std::string text = configuration.to_json();
  EXPECT_THAT(message_of(replaced(text, "\"experts\": \"8\"", "\"experts\": \"16\"")),
              HasSubstr("plans[1].problem: the same as that of plans[0]"));
}

TEST(Configuration, ANewerFormatIsUnsupportedAndAnOldOneNone) {
  const std::string text = sample().to_json();
  const Error newer = error_of(replaced(text, "\"format\": 1", "\"format\": 2"));
  EXPECT_EQ(newer.code, ErrorCode::kUnsupported);
  EXPECT_THAT(newer.message, HasSubstr("format 2; this version reads up to 1"));
  EXPECT_EQ(error_of(replaced(text, "\"format\": 1", "\"format\": 0")).code, ErrorCode::kParse);
  EXPECT_EQ(error_of("{\"format\": 7, \"all\": \"else differs\"}").code, ErrorCode::kUnsupported);
}

TEST(Configuration, ATextCutAnywhereIsAnErrorAndNoCrash) {
  const std::string text = sample().to_json();
  for (size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_EQ(error_of(text.substr(0, length)).code, ErrorCode::kParse);
  }
}

TEST(Configuration, ATextWithRandomDamageIsReadOrRefusedAndNeverCrashes) {
  const std::string text = sample().to_json();
  std::mt19937 random(99);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = text;
    for (uint32_t i = 0; i <= random() % 3; ++i) {
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    }
    const auto read = TunedConfiguration::from_json(damaged, "file.json");
    refused += !read.ok();
    if (!read.ok()) continue;
    EXPECT_TRUE(TunedConfiguration::from_json(read->to_json(), "again").ok());
  }
  EXPECT_GT(refused, 500);
}

TEST(Configuration, AMillionEntriesAreRefusedByNumberOrByTheFirstThatIsWrong) {
  std::string entries;
  for (int i = 0; i < 1'000'000; ++i) entries += i == 0 ? "{}" : ",{}";
  const std::string head = R"({"format": 1, "device": {"kind": "cpu", "identity": {}}, "plans": [)";
  EXPECT_THAT(message_of(head + entries + "]}"), HasSubstr("plans: 1000000 items"));
  EXPECT_THAT(message_of(head + R"({"problem": {"op": "f", "attributes": {}}, "runner": "r",
      "layout": "plain", "max_tokens": 4, "decisions": [)" +
                         entries + "]}]}"),
              HasSubstr("decisions: 1000000 items"));
  EXPECT_THAT(message_of("{\"format\": 1, \"x\": \"" + std::string(40 << 20, 'x') + "\"}"),
              HasSubstr("bytes of JSON"));
}

}  // namespace
}  // namespace moetune

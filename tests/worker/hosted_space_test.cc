#include "worker/hosted_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moetune::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two parameters of six points: the host excludes numbers 1 and 2 at 8 tokens.
class HostedSpace : public ::testing::Test {
 protected:
  static std::vector<Parameter> parameters() {
    return {{"block", {16, 32, 64}, ""}, {"order", {"rows", "columns"}, ""}};
  }
  static Tactic tactic(int64_t block, const std::string& order) {
    return Tactic({{"block", block}, {"order", order}});
  }
  Result<Json> answer(const Json& question) {
    asked_.push_back(question["tokens"].get<int64_t>());
    EXPECT_EQ(question["runner"], "r");
    if (!answer_.ok()) return answer_.error();
    if (question["tokens"] != 8) return Json{{"excluded", Json::array()}};
    return answer_;
  }

  Result<Json> answer_ = Json{{"excluded", {{{"reason", "too large"}, {"points", {{1, 2}}}}}}};
  std::vector<int64_t> asked_;
  std::shared_ptr<HostedStage> stage_ = std::make_shared<HostedStage>(
      [this](Json question) { return answer(question); }, Json{{"runner", "r"}}, parameters());
};

TEST_F(HostedSpace, PointsAreThoseThatTheHostDoesNotExclude) {
  const Space space = stage_->space();
  EXPECT_EQ(space.points(8).size(), 4u);
  EXPECT_THAT(space.why_excluded(tactic(16, "columns"), 8), HasSubstr("too large"));
  EXPECT_THAT(space.why_excluded(tactic(32, "rows"), 8), HasSubstr("too large"));
  EXPECT_EQ(space.why_excluded(tactic(32, "columns"), 8), "");
  EXPECT_EQ(space.points(9).size(), 6u);
}

TEST_F(HostedSpace, TheHostIsAskedOnceForEachNumberOfTokens) {
  const Space space = stage_->space();
  for (int i = 0; i < 3; ++i) {
    space.points(8);
    space.points(1);
  }
  EXPECT_THAT(asked_, ElementsAre(8, 1));
}

// As the tuner does where it looks how far a decision fits.
TEST_F(HostedSpace, OnePointAtManyNumbersOfTokensIsAskedAboutAtOnce) {
  std::vector<Json> questions;
  auto stage = std::make_shared<HostedStage>(
      [&](Json question) -> Result<Json> {
        questions.push_back(question);
        if (!question.contains("until")) return Json{{"excluded", Json::array()}};
        EXPECT_EQ(question["tactic"], (Json{{"block", 32}, {"order", "rows"}}));
        return Json{{"until", question["until"]},
                    {"excluded", {{{"reason", "too many"}, {"tokens", {{500, 600}}}}}}};
      },
      Json{{"runner", "r"}}, parameters());
  const Space space = stage->space();
  for (int64_t tokens = 65; tokens < 1024; ++tokens) {
    const bool is_out = 500 <= tokens && tokens <= 600;
    EXPECT_EQ(space.why_excluded(tactic(32, "rows"), tokens).empty(), !is_out) << tokens;
  }
  EXPECT_EQ(questions.size(), 2u);
  EXPECT_EQ(space.points(70).size(), 6u) << "all points of a size are still asked about together";
  for (int64_t tokens = 9000; tokens > 6000; tokens -= 7)
    EXPECT_EQ(space.why_excluded(tactic(32, "rows"), tokens), "");
  EXPECT_LE(questions.size(), 6u);
}

TEST_F(HostedSpace, AHostThatDoesNotKnowTheQuestionIsAskedAboutSingleNumbers) {
  const Space space = stage_->space();
  for (int64_t tokens = 5; tokens < 10; ++tokens)
    EXPECT_EQ(space.why_excluded(tactic(32, "rows"), tokens).empty(), tokens != 8) << tokens;
  EXPECT_THAT(asked_, ElementsAre(5, 6, 6, 7, 8, 9)) << "once in vain";
  EXPECT_EQ(stage_->trouble(), "");
}

TEST_F(HostedSpace, AnAddedPointIsThereAndItsValuesAreInNoOther) {
  stage_->add_point(tactic(128, "rows"));
  stage_->add_point(tactic(32, "rows"));  // Excluded by the host otherwise.
  const Space space = stage_->space();
  EXPECT_EQ(space.why_excluded(tactic(128, "rows"), 8), "");
  EXPECT_THAT(space.why_excluded(tactic(128, "columns"), 8), HasSubstr("only a default"));
  EXPECT_EQ(space.why_excluded(tactic(32, "rows"), 8), "");
  EXPECT_EQ(space.points(8).size(), 6u);
}

TEST_F(HostedSpace, APointOfOtherParametersIsNotAdded) {
  stage_->add_point(Tactic({{"block", 128}}));
  stage_->add_point(Tactic({{"block", 128}, {"order", "rows"}, {"more", 1}}));
  EXPECT_EQ(stage_->space().parameters()[0].values.size(), 3u);
  stage_->add_point(Tactic({{"order", "rows"}, {"block", 128}}));
  EXPECT_EQ(stage_->space().why_excluded(tactic(128, "rows"), 8), "") << "their order is no matter";
}

TEST_F(HostedSpace, WhereTheHostCannotBeAskedNothingIsExcluded) {
  answer_ = Error{ErrorCode::kRun, "the host is gone"};
  EXPECT_EQ(stage_->space().points(8).size(), 6u);
  EXPECT_THAT(stage_->trouble(), HasSubstr("at 8 tokens: the host is gone"));
}

// What came before the nonsense counts no more than that.
TEST_F(HostedSpace, AnAnswerIsBelievedAsAWholeOrNotAtAll) {
  answer_ =
      Json{{"excluded", {{{"reason", "right"}, {"points", {{0, 0}}}}, {{"points", {{1, 1}}}}}}};
  EXPECT_EQ(stage_->space().points(8).size(), 6u);
  EXPECT_THAT(stage_->trouble(), HasSubstr("reason"));
}

TEST_F(HostedSpace, PointsThatAreNotThereAreNotBelieved) {
  for (const Json& points : {Json{{4, 6}}, Json{{3, 2}}, Json{{-1, 2}}, Json{{"a", 2}}, Json{7}}) {
    answer_ = Json{{"excluded", {{{"reason", "x"}, {"points", points}}}}};
    auto stage = std::make_shared<HostedStage>([this](Json q) { return answer(q); },
                                               Json{{"runner", "r"}}, parameters());
    EXPECT_EQ(stage->space().points(8).size(), 6u) << points.dump();
  }
}

// Of a "stage" in a description, what is wrong with it; empty: it was read.
std::string error_of_stage(const Json& description) {
  JsonReader reader(description, "stage");
  const auto stage =
      HostedStage::read(reader, [](const Json&) -> Result<Json> { return Json::object(); }, {});
  return reader.ok() ? std::string() : reader.error().message;
}

TEST(HostedStageRead, SaysWhatIsNoSpace) {
  const Json good{{"name", "main"}, {"parameters", {{{"name", "block"}, {"values", {1, "two"}}}}}};
  EXPECT_EQ(error_of_stage(good), "");
  Json bad = good;
  bad["parameters"][0]["values"] = Json::array();
  EXPECT_THAT(error_of_stage(bad), HasSubstr("at least one"));
  bad["parameters"][0]["values"] = {1.5};
  EXPECT_THAT(error_of_stage(bad), HasSubstr("integers or words"));
  bad["parameters"][0]["values"] = 7;
  EXPECT_THAT(error_of_stage(bad), HasSubstr("values"));
  bad.erase("parameters");
  EXPECT_THAT(error_of_stage(bad), HasSubstr("parameters"));
  Json large = good;
  Json values = Json::array();
  for (int i = 0; i < 2000; ++i) values.push_back(i);
  large["parameters"] = {{{"name", "a"}, {"values", values}}, {{"name", "b"}, {"values", values}}};
  EXPECT_THAT(error_of_stage(large), HasSubstr("points"));
}

}  // namespace
}  // namespace moetune::worker

#include "cli/compare_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/host_flags.h"

namespace moetune::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

CompareCell timed(double us) { return {.candidate = "c", .median_us = us}; }
CompareCell failed(const std::string& why) { return {.candidate = "c", .failed = why}; }

CompareRecord record() {
  return {.contestants = {{"moetune", false}, {"vllm", false}, {"vllm", true}},
          .rows = {{1, "uniform", 5, {timed(10), timed(20), timed(40)}},
                   {8, "uniform", 5, {timed(30), failed("row 3: not finite"), timed(15)}}}};
}

TEST(CompareRecord, CountsWhoIsFastestAndHowFarOthersAre) {
  const CompareRecord found = record();
  EXPECT_EQ(found.rows[0].fastest(), 0);
  EXPECT_EQ(found.rows[1].fastest(), 2);
  EXPECT_EQ(found.times_fastest(0), 1);
  EXPECT_DOUBLE_EQ(found.mean_ratio(0), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(found.mean_ratio(1), 2) << "of the rows in which it ran";
}

TEST(CompareRecord, NamesWhatFailedAndWhy) {
  EXPECT_THAT(record().to_text(),
              HasSubstr("vllm default at 8 tokens, uniform: row 3: not finite"));
  const Json json = record().to_json();
  EXPECT_EQ(json["rows"][1]["times"][1]["failed"], "row 3: not finite");
  EXPECT_FALSE(json["rows"][1]["times"][1].contains("us"));
  EXPECT_EQ(json["rows"][1]["fastest"], "vllm tuned");
}

TEST(CompareRecord, ARowInWhichAllFailedHasNoFastest) {
  CompareRecord found{.contestants = {{"a", false}}, .rows = {{1, "uniform", 0, {failed("gone")}}}};
  EXPECT_EQ(found.rows[0].fastest(), -1);
  EXPECT_EQ(found.mean_ratio(0), 0);
  EXPECT_THAT(found.to_text(), HasSubstr("gone"));
}

TEST(UsualConfigPath, HasAFileForEachSetOfHosts) {
  const DeviceProperties device{"cpu", "A CPU", {{"isa", "avx2"}}, {}};
  const auto path = [&](const std::string& hosts) {
    return usual_config_path(device, parse_hosts(hosts).value());
  };
  EXPECT_EQ(usual_config_path(device, {}), get_config_path(device));
  EXPECT_THAT(path("vllm"), EndsWith("-vllm.json"));
  EXPECT_THAT(path("moetune,vllm"), EndsWith("-moetune-vllm.json"));
  EXPECT_THAT(path("python3 /a/b/mine.py --fast"), EndsWith("-python3-mine-py-fast.json"));
}

}  // namespace
}  // namespace moetune::cli

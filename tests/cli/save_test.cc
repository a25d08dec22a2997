// When a result may be written, and when what is there already is worth more.
#include "cli/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace moetune::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

DeviceProperties device(const std::string& cores = "2") {
  return {"cpu", "a processor", {{"cores", cores}, {"isa", "avx2"}}, {}};
}

/// A plan over [1, buckets] of which the first `resolved` buckets are decided.
Plan plan(int buckets, int resolved) {
  Plan plan;
  plan.problem = {"fused_moe", {{"hidden", "64"}}};
  plan.runner = "cpu.packed";
  plan.layout = "plain";
  plan.max_tokens = buckets;
  for (int i = 1; i <= buckets; ++i) {
    Decision decision;
    decision.tokens = decision.from = decision.to = i;
    decision.candidate = {"cpu.packed", 1, "separate", {{"gemm1", Tactic({{"tile", int64_t{i}}})}}};
    decision.evidence.resolved = i <= resolved;
    plan.decisions.push_back(decision);
  }
  return plan;
}

class Save : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("moetune_save_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string saved(const Plan& plan) const {
    TunedConfiguration configuration;
    configuration.device = device();
    configuration.put(plan);
    EXPECT_TRUE(configuration.save_merged(path("tuned.json")).ok());
    return path("tuned.json");
  }

  fs::path folder_;
};

TEST_F(Save, ARunThatEndedEarlyDoesNotReplaceWhatIsBetterKnown) {
  const std::string file = saved(plan(4, 3));
  TuneReport report;
  report.plan = plan(4, 2);
  report.interrupted = true;
  EXPECT_TRUE(knows_less(report, file));
  report.interrupted = false;
  report.out_of_budget = true;
  EXPECT_TRUE(knows_less(report, file));
  report.plan = plan(4, 3);
  EXPECT_FALSE(knows_less(report, file)) << "as much is known, and it is fresher";
}

TEST_F(Save, ARunToTheEndAlwaysCounts) {
  TuneReport report;
  report.plan = plan(4, 0);
  EXPECT_FALSE(knows_less(report, saved(plan(4, 4))));
}

TEST_F(Save, NothingIsLostWhereNothingWasKnown) {
  TuneReport report;
  report.plan = plan(4, 1);
  report.interrupted = true;
  EXPECT_FALSE(knows_less(report, path("missing.json")));
  Plan other = plan(4, 4);
  other.problem.attributes["hidden"] = "128";
  EXPECT_FALSE(knows_less(report, saved(other))) << "another problem's plan is not replaced";
}

TEST_F(Save, TakesAPlaceThatCanBeWrittenAndLeavesNoTraceThere) {
  const auto prepared = prepare_output(path("new.json"), "", device());
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  EXPECT_EQ(*prepared, path("new.json"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Save, TakesAFileOfThisDeviceAndNoOther) {
  const std::string file = saved(plan(1, 1));
  EXPECT_TRUE(prepare_output(file, "", device()).ok());
  const auto other = prepare_output(file, "", device("64"));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(other.error().message, HasSubstr("cores"));
  EXPECT_THAT(other.error().hint, HasSubstr("--out"));
}

TEST_F(Save, RefusesAFileThatIsNoConfigurationButTakesAnEmptyOne) {
  std::ofstream(path("words.json")) << "words";
  EXPECT_FALSE(prepare_output(path("words.json"), "", device()).ok());
  std::ofstream(path("empty.json")).flush();
  EXPECT_TRUE(prepare_output(path("empty.json"), "", device()).ok());
}

TEST_F(Save, SaysWhatIsWrongWithAPlace) {
  EXPECT_EQ(check_can_write(folder_.string()).error().code, ErrorCode::kInvalidArgument);
  const Status missing = check_can_write(path("no/such/tuned.json"));
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().hint, HasSubstr("mkdir -p"));
  EXPECT_EQ(check_can_write("/proc/tuned.json").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace moetune::cli

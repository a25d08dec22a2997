// The tuned configuration as a file that several processes write: cases 17 and 19.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "base/file.h"
#include "moetune/autotuner.h"
#include "tuner/sample_plans.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ConfigurationFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "configuration_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/tuned.json";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_;
  std::string path_;
};

TunedConfiguration with_plans(const std::vector<std::string>& experts, int64_t tile = 4) {
  TunedConfiguration configuration;
  configuration.device = sample_device();
  for (const std::string& count : experts) {
    configuration.put(sample_plan({{8, 0}, {64, tile}}, sample_problem(count)));
  }
  return configuration;
}

std::string content(const std::string& path) {
  const auto text = read_file(path, size_t{64} << 20);
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : "";
}

// Runs `body` in a child process, which ends with what it returns.
pid_t in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  return child;
}

bool succeeded(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(ConfigurationFileTest, SavesWhatIsLoadedAgainAndMakesMissingFolders) {
  const std::string path = folder_ + "/a/b/tuned.json";
  const TunedConfiguration saved = with_plans({"8", "16"});
  ASSERT_TRUE(saved.save_merged(path).ok());
  const auto loaded = TunedConfiguration::load(path);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->plans, saved.plans);
  EXPECT_EQ(content(path), saved.to_json());
}

TEST_F(ConfigurationFileTest, ASecondSaveOfTheSameIsTheSameBytes) {
  ASSERT_TRUE(with_plans({"8", "16"}).save_merged(path_).ok());
  const std::string first = content(path_);
  ASSERT_TRUE(with_plans({"16"}).save_merged(path_).ok());
  EXPECT_EQ(content(path_), first);
}

TEST_F(ConfigurationFileTest, MergingKeepsOtherProblemsAndUnknownFieldsAndReplacesItsOwn) {
  ASSERT_TRUE(with_plans({"8", "16"}, 4).save_merged(path_).ok());
  std::string text = content(path_);
  text.insert(text.find("\"device\""), "\"from_the_future\": [1, 2], ");
  ASSERT_TRUE(replace_file(path_, text).ok());
  ASSERT_TRUE(with_plans({"16", "32"}, 7).save_merged(path_).ok());
  const auto merged = TunedConfiguration::load(path_);
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->plans.size(), 3u);
  const auto tile = [&](const std::string& experts) {
    const Plan* plan = merged->find(sample_problem(experts));
    return plan->decisions.back().candidate.stages[0].tactic.number("tile");
  };
  EXPECT_EQ(tile("8"), 4);
  EXPECT_EQ(tile("16"), 7);
  EXPECT_EQ(tile("32"), 7);
  EXPECT_THAT(content(path_), HasSubstr("from_the_future"));
}

TEST_F(ConfigurationFileTest, AFileForAnotherDeviceIsLeftAloneAndTheDifferenceNamed) {
  TunedConfiguration other = with_plans({"8"});
  other.device.identity["cores"] = "64";
  ASSERT_TRUE(other.save_merged(path_).ok());
  const std::string before = content(path_);
  const Status status = with_plans({"16"}).save_merged(path_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr(path_), HasSubstr("cores: 2 here, 64 there")));
  EXPECT_EQ(content(path_), before);
}

TEST_F(ConfigurationFileTest, AnotherToolchainIsNoOtherDevice) {
  TunedConfiguration other = with_plans({"8"});
  other.device.toolchain["compiler"] = "gcc 99";
  ASSERT_TRUE(other.save_merged(path_).ok());
  ASSERT_TRUE(with_plans({"16"}).save_merged(path_).ok());
  EXPECT_EQ(TunedConfiguration::load(path_)->plans.size(), 2u);
}

TEST_F(ConfigurationFileTest, WhatIsNoConfigurationIsLeftAlone) {
  for (const char* precious :
       {"my shopping list", "{\"format\": 2}", "{\"format\": 1, \"plans\"", "{}", "[1, 2, 3]"}) {
    ASSERT_TRUE(replace_file(path_, precious).ok());
    const Status status = with_plans({"8"}).save_merged(path_);
    ASSERT_FALSE(status.ok()) << precious;
    EXPECT_THAT(status.error().message, HasSubstr("is not replaced"));
    EXPECT_THAT(status.error().hint, HasSubstr("move it away"));
    EXPECT_EQ(content(path_), precious);
  }
}

TEST_F(ConfigurationFileTest, AnEmptyFileIsReplaced) {
  ASSERT_TRUE(replace_file(path_, "").ok());
  EXPECT_FALSE(TunedConfiguration::load(path_).ok());
  ASSERT_TRUE(with_plans({"8"}).save_merged(path_).ok());
  EXPECT_EQ(TunedConfiguration::load(path_)->plans.size(), 1u);
}

TEST_F(ConfigurationFileTest, PlacesThatCannotBeWrittenAreErrors) {
  EXPECT_FALSE(with_plans({"8"}).save_merged("").ok());
  EXPECT_FALSE(with_plans({"8"}).save_merged(folder_).ok());
  EXPECT_FALSE(with_plans({"8"}).save_merged("/proc/no/such/tuned.json").ok());
  ASSERT_TRUE(replace_file(folder_ + "/file", "x").ok());
  EXPECT_FALSE(with_plans({"8"}).save_merged(folder_ + "/file/tuned.json").ok());
  EXPECT_EQ(TunedConfiguration::load(folder_ + "/none.json").error().code, ErrorCode::kNotFound);
}

TEST_F(ConfigurationFileTest, WhatTwoProcessesSaveAtOnceIsAllThere) {
  constexpr int kRounds = 50;
  const auto writer = [&](int which) {
    return [=, this] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string experts = std::to_string(1000 * (which + 1) + round);
        if (!with_plans({experts}).save_merged(path_).ok()) return false;
      }
      return true;
    };
  };
  const pid_t first = in_child(writer(0));
  const pid_t second = in_child(writer(1));
  EXPECT_TRUE(succeeded(first));
  EXPECT_TRUE(succeeded(second));
  const auto merged = TunedConfiguration::load(path_);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->plans.size(), 2u * kRounds);
}

TEST_F(ConfigurationFileTest, AKillAtAnyMomentLeavesTheOldOrTheNewFile) {
  ASSERT_TRUE(with_plans({"8"}).save_merged(path_).ok());
  for (int round = 0; round < 40; ++round) {
    const pid_t child = in_child([this] {
      for (int64_t i = 0; true; ++i) {
        if (!with_plans({"8", std::to_string(100 + i % 50)}).save_merged(path_).ok()) return false;
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(500 + round * 450));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "saving failed before it was killed";
    const auto left = TunedConfiguration::load(path_);
    ASSERT_TRUE(left.ok()) << left.error().message;
    EXPECT_NE(left->find(sample_problem("8")), nullptr);
  }
  ASSERT_TRUE(with_plans({"16"}).save_merged(path_).ok()) << "the lock is free again";
}

TEST(ConfigPath, NamesTheDeviceAndFollowsTheEnvironment) {
  DeviceProperties device = sample_device();
  device.name = "AMD EPYC(tm) 7B13  64-Core";
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  ::unsetenv("MOETUNE_CONFIG");
  const std::string path = get_config_path(device);
  EXPECT_THAT(path, ::testing::StartsWith("/cache/moetune/tuned-amd-epyc-tm-7b13-64-core-"));
  EXPECT_THAT(path, ::testing::EndsWith(".json"));
  DeviceProperties other = device;
  other.identity["cores"] = "64";
  EXPECT_NE(get_config_path(other), path) << "one name, two devices";
  other = device;
  other.toolchain["compiler"] = "another";
  EXPECT_EQ(get_config_path(other), path);
  ::setenv("MOETUNE_CONFIG", "/my/own.json", 1);
  EXPECT_EQ(get_config_path(device), "/my/own.json");
  ::unsetenv("MOETUNE_CONFIG");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace moetune

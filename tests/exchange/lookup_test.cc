// Finding files as the engines do, and naming what is nearly the file that is looked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "exchange/folders.h"
#include "exchange/table_file.h"
#include "exchange/traps.h"

namespace moetune::exchange {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGood =
    R"({"1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}})";

class EngineFiles : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  std::string put(const std::string& path, const std::string& content = kGood) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
    return (root_ / path).string();
  }
  std::string at(const std::string& path) const { return (root_ / path).string(); }

  static TableName wanted() {
    return *parse_table_name("E=128,N=384,device_name=NVIDIA_H200.json");
  }
  std::vector<std::string> kinds(Engine engine, const LayerFacts& layer = {},
                                 const TableName& name = wanted()) const {
    std::vector<std::string> all;
    for (const Trap& trap :
         find_traps(name, engine, {at(name.text(engine))}, layer, list_tables({root_.string()})))
      all.emplace_back(to_string(trap.kind));
    return all;
  }

  fs::path root_;
  const std::string file_ = "E=128,N=384,device_name=NVIDIA_H200.json";
};

TEST_F(EngineFiles, VllmLooksIntoTheUsersFolderFirst) {
  const std::string configs = "site/vllm/model_executor/layers/fused_moe/configs/";
  const std::string packaged = put(configs + file_);
  put("site/vllm-0.10.1.dist-info/METADATA");
  fs::create_directories(root_ / "own");
  for (const char* path : {"site", "site/vllm"}) {
    const auto installation = find_installation(Engine::kVllm, at(path), at("own"));
    ASSERT_TRUE(installation.ok()) << installation.error().message;
    EXPECT_EQ(installation->engine_version.text(), "0.10.1");
    const Lookup lookup = look_up(*installation, wanted());
    EXPECT_EQ(lookup.outcome, Lookup::Outcome::kFound);
    EXPECT_EQ(lookup.path, packaged);
    EXPECT_THAT(lookup.looked_for, ElementsAre(at("own/" + file_), packaged));
  }
  const std::string own = put("own/" + file_);
  EXPECT_EQ(look_up(*find_installation(Engine::kVllm, at("site"), at("own")), wanted()).path, own);
  EXPECT_EQ(find_installation(Engine::kVllm, at("own"), "")->user_folder, at("own"));
  EXPECT_EQ(find_installation(Engine::kVllm, at("nowhere"), "").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(find_installation(Engine::kVllm, at("own"), at("site")).ok()) << "which is own?";
}

TEST_F(EngineFiles, SglangTakesTheNewestOtherTritonAndOnlyTheUsersFolder) {
  const std::string place = "site/sglang/srt/layers/moe/moe_runner/triton_utils/configs/";
  put(place + "triton_3_1_0/" + file_);
  const std::string newer = put(place + "triton_3_10_0/" + file_);
  put("site/triton-3.8.0.dist-info/METADATA");
  auto installation = find_installation(Engine::kSglang, at("site"), "");
  ASSERT_TRUE(installation.ok()) << installation.error().message;
  EXPECT_EQ(installation->triton_version.text(), "3.8.0");
  Lookup lookup = look_up(*installation, wanted());
  EXPECT_EQ(lookup.outcome, Lookup::Outcome::kOtherTriton);
  EXPECT_EQ(lookup.path, newer) << "3.10 is newer than 3.1";
  fs::create_directories(root_ / "own");
  installation = find_installation(Engine::kSglang, at("site"), at("own"));
  EXPECT_EQ(look_up(*installation, wanted()).outcome, Lookup::Outcome::kDefault);
  const std::string own = put("own/configs/triton_3_8_0/" + file_);
  lookup = look_up(*installation, wanted());
  EXPECT_EQ(lookup.outcome, Lookup::Outcome::kFound);
  EXPECT_EQ(lookup.path, own);
}

TEST_F(EngineFiles, AFileThatTheEngineWouldEndAtIsBroken) {
  Installation installation{.engine = Engine::kVllm, .user_folder = root_.string()};
  const auto outcome = [&](const std::string& content) {
    put(file_, content);
    return look_up(installation, wanted()).outcome;
  };
  const std::string versioned = std::string(R"({"triton_version": "3.4.0", )") + (kGood + 1);
  EXPECT_EQ(outcome(versioned), Lookup::Outcome::kFound);
  EXPECT_EQ(outcome("{"), Lookup::Outcome::kBroken);
  EXPECT_EQ(outcome(R"({"1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64,
                       "GROUP_SIZE_M": 1, "USE_TMA": true}})"),
            Lookup::Outcome::kBroken);
  installation.engine_version = {{0, 10, 1}};
  EXPECT_EQ(outcome(versioned), Lookup::Outcome::kBroken) << "before 0.11.0";
  EXPECT_THAT(look_up(installation, wanted()).problem, HasSubstr("triton_version"));
  put("configs/triton_3_4_0/" + file_, versioned);
  const Installation sglang{
      .engine = Engine::kSglang, .user_folder = root_.string(), .triton_version = {{3, 4, 0}}};
  EXPECT_EQ(look_up(sglang, wanted()).outcome, Lookup::Outcome::kBroken);
}

TEST_F(EngineFiles, EachNearMissHasItsReason) {
  EXPECT_THAT(kinds(Engine::kVllm), IsEmpty());
  const struct {
    const char* file;
    const char* kind;
  } kMisses[] = {
      {"below/E=128,N=384,device_name=NVIDIA_H200.json", "misplaced"},
      {"E=128,N=384,device_name=NVIDIA_H200_NVL.json", "device_name"},
      {"E=128,N=384,device_name=H200.json", "device_name"},
      {"E=128,N=384,device_name=nvidia_h200.json", "device_name"},
      {"E=129,N=384,device_name=NVIDIA_H200.json", "shared_expert"},
      {"E=127,N=384,device_name=NVIDIA_H200.json", "shared_expert"},
      {"E=128,N=768,device_name=NVIDIA_H200.json", "tensor_parallel"},
      {"E=128,N=384,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", "format"},
      {"E=128,N=384,device_name=NVIDIA_H20.json", "other_device"},
      {"E=128,N=384,device_name=NVIDIA_H100_80GB_HBM3.json", "other_device"},
  };
  for (const auto& [file, kind] : kMisses) {
    const std::string path = put(file);
    EXPECT_THAT(kinds(Engine::kVllm), ElementsAre(kind)) << file;
    fs::remove(path);
  }
  put("E=130,N=384,device_name=NVIDIA_H200.json");
  put("E=64,N=768,device_name=NVIDIA_H200.json");
  EXPECT_THAT(kinds(Engine::kVllm), IsEmpty()) << "more than a shared expert apart";
  EXPECT_THAT(kinds(Engine::kVllm, {.shared_experts = 2}), ElementsAre("shared_expert"));
}

TEST_F(EngineFiles, TheSpaceInABlockShapeAndTritonsFolderAreNamed) {
  const TableName blocks = *parse_table_name(
      "E=128,N=384,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json");
  const std::string path = put(blocks.text(Engine::kVllm));
  EXPECT_THAT(kinds(Engine::kSglang, {}, blocks), ElementsAre("spelling"));
  fs::remove(path);
  put(blocks.text(Engine::kSglang));
  EXPECT_THAT(kinds(Engine::kVllm, {}, blocks), ElementsAre("spelling"));
  fs::remove_all(root_);
  put("configs/triton_3_2_0/" + file_);
  EXPECT_THAT(kinds(Engine::kSglang), ElementsAre("triton_version"));
}

TEST_F(EngineFiles, AnotherNumberOfRanksIsWorkedOut) {
  put("E=128,N=768,device_name=NVIDIA_H200.json");
  const auto traps = find_traps(wanted(), Engine::kVllm, {}, {.full_intermediate = 1536},
                                list_tables({root_.string()}));
  ASSERT_EQ(traps.size(), 1u);
  EXPECT_THAT(traps[0].text, HasSubstr("--tp 2"));
}

TEST_F(EngineFiles, ListsAtMostTwoOfAKindNearestKindFirst) {
  for (int rows = 1; rows < 9; ++rows)
    put("E=128,N=" + std::to_string(rows) + ",device_name=NVIDIA_H200.json");
  put("E=128,N=384,device_name=NVIDIA_H200_NVL.json");
  EXPECT_THAT(kinds(Engine::kVllm),
              ElementsAre("device_name", "tensor_parallel", "tensor_parallel"));
}

TEST_F(EngineFiles, WhatWasThereIsKeptEveryTime) {
  const std::string path = at("new/folder/" + file_);
  const auto write = [&](const char* content) {
    const auto written = write_table_file(path, content);
    EXPECT_TRUE(written.ok()) << written.error().message;
    return *written;
  };
  const auto content_of = [](const std::string& file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(write("one").outcome, WrittenFile::Outcome::kNew);
  EXPECT_EQ(write("one").outcome, WrittenFile::Outcome::kUnchanged);
  EXPECT_EQ(write("two").backup, path + ".bak");
  EXPECT_EQ(write("three").backup, path + ".bak.2");
  EXPECT_EQ(content_of(path), "three");
  EXPECT_EQ(content_of(path + ".bak"), "one");
  EXPECT_EQ(content_of(path + ".bak.2"), "two");
  fs::create_directories(at("folder.json"));
  EXPECT_FALSE(write_table_file(at("folder.json"), "x").ok());
  put("plain");
  EXPECT_FALSE(write_table_file(at("plain/in/a/file.json"), "x").ok());
}

}  // namespace
}  // namespace moetune::exchange

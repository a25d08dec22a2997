#include "exchange/table_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune::exchange {
namespace {

TEST(TableName, ReadsAndSpellsNamesAsTheEnginesDo) {
  const struct {
    Engine engine;
    const char* text;
  } kNames[] = {
      {Engine::kVllm, "E=128,N=768,device_name=NVIDIA_H200.json"},
      {Engine::kVllm, "E=8,N=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json"},
      {Engine::kVllm,
       "E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"},
      {Engine::kVllm,
       "E=1,N=2,device_name=Intel(R)_Arc(TM)_Pro_B70_Graphics,block_shape=[32,64].json"},
      {Engine::kSglang,
       "E=257,N=256,device_name=NVIDIA_H20-3e,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"},
      {Engine::kSglang, "E=128,N=192,device_name=NVIDIA_H200_down.json"},
      {Engine::kSglang,
       "E=16,N=1024,device_name=NVIDIA_H20,dtype=fp8_w8a8,per_channel_quant=True.json"},
  };
  for (const auto& [engine, text] : kNames) {
    const auto name = parse_table_name(std::string("/some/folder/") + text);
    ASSERT_TRUE(name.ok()) << text;
    EXPECT_EQ(name->text(engine), text);
  }
}

TEST(TableName, TheSpaceInABlockShapeIsNoDifference) {
  const auto with = parse_table_name("E=1,N=2,device_name=X,dtype=d,block_shape=[128, 128].json");
  const auto without = parse_table_name("E=1,N=2,device_name=X,dtype=d,block_shape=[128,128].json");
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(*with, *without);
}

TEST(TableName, RefusesOtherNames) {
  for (const char* text :
       {"", "tuned.json", "E=,N=2,device_name=X.json", "E=0,N=2,device_name=X.json",
        "E=-1,N=2,device_name=X.json", "E=1,N=2.json", "E=1,N=2,device_name=X",
        "E=1,N=2,device_name=X,dtype=.json", "E=1,N=2,device_name=X,block_shape=[1].json",
        "E=1,N=2,device_name=X,dtype=int4_w4a16,backend=flydsl.json",
        "N=6144,K=2048,device_name=NVIDIA_L40S,dtype=fp8_w8a8,block_shape=[128,128].json",
        "E=99999999999999999999,N=2,device_name=X.json"}) {
    EXPECT_FALSE(parse_table_name(text).ok()) << text;
  }
}

TEST(EngineDevice, NamesDependOnTheEngineAndItsVersion) {
  const auto name = [](Engine engine, const char* device, Version version = {}) {
    return device_file_name(engine, device, version);
  };
  EXPECT_EQ(name(Engine::kVllm, "NVIDIA H200 NVL"), "NVIDIA_H200");
  EXPECT_EQ(name(Engine::kVllm, "NVIDIA H200 NVL", {{0, 11, 1}}), "NVIDIA_H200");
  EXPECT_EQ(name(Engine::kVllm, "NVIDIA H200 NVL", {{0, 11, 0}}), "NVIDIA_H200_NVL");
  EXPECT_EQ(name(Engine::kSglang, "NVIDIA H200 NVL"), "NVIDIA_H200_NVL");
  EXPECT_EQ(name(Engine::kVllm, "NVIDIA GH200 480GB"), "NVIDIA_GH200_480GB");
  EXPECT_EQ(name(Engine::kVllm, "Made  up / board"), "Made_up_board");
  EXPECT_EQ(name(Engine::kVllm, "NVIDIA_H100_80GB_HBM3"), "NVIDIA_H100_80GB_HBM3");
}

TEST(EngineVersion, IsKnownByItsLeadingNumbers) {
  EXPECT_EQ(parse_version("0.11.0")->text(), "0.11.0");
  EXPECT_EQ(parse_version("0.5.8.post1")->text(), "0.5.8");
  EXPECT_EQ(parse_version("3.4.0+git1")->text(), "3.4.0");
  EXPECT_LT(*parse_version("0.9.2"), *parse_version("0.11.0"));
  for (const char* text : {"", "v1", ".1", "99999999999", "1.2.3.4.5.6.7.8.9"})
    EXPECT_FALSE(parse_version(text).has_value()) << text;
}

}  // namespace
}  // namespace moetune::exchange

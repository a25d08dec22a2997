#include "exchange/engine_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace moetune::exchange {
namespace {

using testing::ElementsAre;

// Lines as the engines print them, with folders made up.
constexpr const char* kVllmOld =
    "(VllmWorker rank=1 pid=236) WARNING 05-03 17:42:23 [fused_moe.py:668] Using default MoE "
    "config. "
    "Performance might be sub-optimal! Config file not found at /opt/vllm/configs/"
    "E=16,N=1536,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json";
constexpr const char* kVllmList =
    "(EngineCore_0 pid=2875517) WARNING 08-15 12:11:58 [fused_moe.py:727] Using default MoE "
    "config. "
    "Performance might be sub-optimal! Config file not found at "
    "['/own/E=32,N=6144,device_name=NVIDIA_H100.json', "
    "'/opt/vllm/configs/E=32,N=6144,device_name=NVIDIA_H100.json']";
constexpr const char* kVllmNew =
    "(Worker_TP0 pid=7) WARNING 11-08 16:50:53 [fused_moe.py:1165] Using default MoE config. "
    "Performance might be sub-optimal! Config file not found at "
    "/own/E=32,N=6144,device_name=NVIDIA_H100.json, "
    "/opt/vllm/configs/E=32,N=6144,device_name=NVIDIA_H100.json";
constexpr const char* kVllmFound =
    "(Worker_TP3 pid=11) INFO 11-08 16:50:53 [fused_moe.py:876] Using configuration from "
    "/own/E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json for MoE "
    "layer.";
constexpr const char* kSglangDefault =
    "[2026-04-22 16:35:28 TP7 EP3] Using default MoE kernel config. Performance might be "
    "sub-optimal! Config file not found at /opt/sglang/configs/triton_3_5_1/"
    "E=257,N=256,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128, 128].json, you can create "
    "them with https://github.com/sgl-project/sglang/tree/main/benchmark/kernels/fused_moe_triton";
constexpr const char* kSglangOther =
    "[2026-02-21 10:48:18 TP2] Config file not found at /opt/sglang/configs/triton_3_5_1/"
    "E=128,N=192,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json. Fallback to "
    "triton version 3.2.0 and use MoE kernel config from /opt/sglang/configs/triton_3_2_0/"
    "E=128,N=192,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json. Performance "
    "might be sub-optimal!";
constexpr const char* kSglangFound =
    "[2026-02-21 10:48:18 TP2] Using MoE kernel config from /opt/sglang/configs/triton_3_5_1/"
    "E=128,N=192,device_name=NVIDIA_H200.json.";
constexpr const char* kSglangDown =
    "[2026-02-21 10:48:17 TP3] Using MoE kernel config with down_moe=False. Performance might be "
    "sub-optimal! Config file not found at /opt/sglang/configs/triton_3_5_1/"
    "E=128,N=192,device_name=NVIDIA_H200_down.json, you can create them with https://github.com/";
constexpr const char* kSglangDownNew =
    "[2026-11-21 10:48:17 TP3] Down MoE config file not found at /opt/sglang/configs/triton_3_5_1/"
    "E=128,N=192,device_name=NVIDIA_H200_down.json; reusing the tuned up-projection config without "
    "TMA. Performance might be sub-optimal.";
constexpr const char* kSglangFirst =
    "[2025-04-27 10:48:17] Using default MoE config. Performance might be sub-optimal! Config file "
    "not found at /opt/sglang/srt/configs/E=128,N=192,device_name=NVIDIA_H200.json, you can create";

LogFinding only_finding(const char* line) {
  EngineLog log;
  log.add_line(line);
  EXPECT_EQ(log.findings().size(), 1u) << line;
  return log.findings().empty() ? LogFinding{} : log.findings().front();
}

TEST(EngineLog, ReadsWhatEachVersionOfVllmSays) {
  const LogFinding old = only_finding(kVllmOld);
  EXPECT_EQ(old.engine, Engine::kVllm);
  EXPECT_EQ(old.outcome, LogFinding::Outcome::kDefault);
  EXPECT_EQ(old.name.experts, 16);
  EXPECT_TRUE(old.name.block_shape.has_value());
  for (const char* line : {kVllmList, kVllmNew}) {
    const LogFinding finding = only_finding(line);
    EXPECT_EQ(finding.outcome, LogFinding::Outcome::kDefault);
    EXPECT_THAT(finding.looked_for,
                ElementsAre("/own/E=32,N=6144,device_name=NVIDIA_H100.json",
                            "/opt/vllm/configs/E=32,N=6144,device_name=NVIDIA_H100.json"));
  }
  const LogFinding found = only_finding(kVllmFound);
  EXPECT_EQ(found.outcome, LogFinding::Outcome::kFound);
  EXPECT_EQ(found.engine, Engine::kVllm);
  EXPECT_EQ(found.used,
            "/own/E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json");
}

TEST(EngineLog, ReadsWhatEachVersionOfSglangSays) {
  const LogFinding missing = only_finding(kSglangDefault);
  EXPECT_EQ(missing.engine, Engine::kSglang);
  EXPECT_EQ(missing.outcome, LogFinding::Outcome::kDefault);
  EXPECT_EQ(missing.name.experts, 257);
  const LogFinding other = only_finding(kSglangOther);
  EXPECT_EQ(other.outcome, LogFinding::Outcome::kOtherTriton);
  EXPECT_THAT(other.used, testing::HasSubstr("/triton_3_2_0/"));
  EXPECT_THAT(other.looked_for, ElementsAre(testing::HasSubstr("/triton_3_5_1/")));
  EXPECT_EQ(only_finding(kSglangFound).outcome, LogFinding::Outcome::kFound);
  EXPECT_EQ(only_finding(kSglangFound).engine, Engine::kSglang);
  for (const char* line : {kSglangDown, kSglangDownNew}) {
    EXPECT_EQ(only_finding(line).outcome, LogFinding::Outcome::kFirstGemm) << line;
    EXPECT_TRUE(only_finding(line).name.is_down);
  }
  EXPECT_EQ(only_finding(kSglangFirst).engine, Engine::kSglang);
  EXPECT_EQ(only_finding(kSglangFirst).outcome, LogFinding::Outcome::kDefault);
}

TEST(EngineLog, LeavesOtherKernelsAndOtherTextAlone) {
  EngineLog log;
  for (const char* line :
       {"", "Config file not found at", "Config file not found at /etc/app.json", "MoE MoE MoE",
        "WARNING [fp8_utils.py:1165] Using default W8A8 Block FP8 kernel config. Performance might "
        "be sub-optimal! Config file not found at /x/N=6144,K=2048,device_name=NVIDIA_L40S,"
        "dtype=fp8_w8a8,block_shape=[128,128].json",
        "Using MoE kernel config from", "Fallback to triton version .json MoE"}) {
    log.add_line(line);
  }
  EXPECT_TRUE(log.findings().empty());
  EXPECT_EQ(log.lines(), 7);
}

TEST(EngineLog, CountsWhatSeveralRanksSay) {
  const std::string path = testing::TempDir() + "/ranks.log";
  {
    std::ofstream out(path);
    for (int i = 0; i < 8; ++i) out << kVllmOld << '\n' << kVllmFound << "\r\n";
    out << std::string(200000, 'x') << kVllmOld << '\n';  // Beyond what is looked at of a line.
    out << kVllmOld;                                      // No end of line.
  }
  const auto log = read_engine_log(path);
  ASSERT_TRUE(log.ok()) << log.error().message;
  ASSERT_EQ(log->findings().size(), 2u);
  EXPECT_EQ(log->findings()[0].lines, 9);
  EXPECT_EQ(log->findings()[1].lines, 8);
  EXPECT_EQ(log->lines(), 18);
}

TEST(EngineLog, HoldsNoMoreThanItHasRoomFor) {
  EngineLog log;
  for (int i = 1; i <= 2000; ++i)
    log.add_line("Using configuration from /x/E=" + std::to_string(i) +
                 ",N=1,device_name=X.json for MoE layer.");
  EXPECT_EQ(log.findings().size(), 1024u);
  EXPECT_EQ(log.dropped(), 2000 - 1024);
}

TEST(EngineLog, AFileThatIsNotThereIsAnError) {
  EXPECT_EQ(read_engine_log(testing::TempDir() + "/no.log").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_engine_log(testing::TempDir()).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace moetune::exchange

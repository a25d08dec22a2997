#include "cpu/topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace moetune::cpu {
namespace {

// A made-up machine's /sys and /proc.
class FakeMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = ::testing::TempDir() + "topology_" + info->name();
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void add_processor(int id, int core, int package) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(id);
    write(folder + "/topology/core_id", std::to_string(core));
    write(folder + "/topology/physical_package_id", std::to_string(package));
    add_cache(folder + "/cache/index0", "1", "Data", "48K", std::to_string(id));
    add_cache(folder + "/cache/index1", "1", "Instruction", "32K", std::to_string(id));
    add_cache(folder + "/cache/index2", "2", "Unified", "2048K", std::to_string(id));
    add_cache(folder + "/cache/index3", "3", "Unified", "60M", package == 0 ? "0-3" : "4-7");
  }
  void add_cache(const std::string& folder, const char* level, const char* type, const char* size,
                 const std::string& shared) {
    write(folder + "/level", level);
    write(folder + "/type", type);
    write(folder + "/size", size);
    write(folder + "/shared_cpu_list", shared);
  }

  std::string root_;
};

TEST_F(FakeMachine, CoresSiblingsAndCachesAreCounted) {
  write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Example 9000 @ 2.0GHz");
  for (int package = 0; package < 2; ++package)
    for (int i = 0; i < 4; ++i) add_processor(4 * package + i, i % 2, package);
  const Topology topology = read_topology(root_, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(topology.name, "Example 9000 @ 2.0GHz");
  EXPECT_EQ(topology.cores(), 4);
  EXPECT_EQ(topology.default_threads(), 4);
  EXPECT_EQ(topology.l1_bytes, 48u << 10);
  EXPECT_EQ(topology.l2_bytes, 2u << 20);
  EXPECT_EQ(topology.l3_bytes, 120u << 20);
  EXPECT_EQ(topology.placement(9), (std::vector<int>{0, 1, 4, 5, 2, 3, 6, 7, -1}))
      << "a core each first";
}

TEST_F(FakeMachine, OnlyTheAffinityMaskCounts) {
  for (int id = 0; id < 4; ++id) add_processor(id, id, 0);
  const Topology topology = read_topology(root_, {1, 3});
  EXPECT_EQ(topology.cores(), 2);
  EXPECT_EQ(topology.placement(2), (std::vector<int>{1, 3}));
  EXPECT_EQ(topology.l3_bytes, 60u << 20);
}

TEST_F(FakeMachine, AControlGroupsQuotaLimitsThreads) {
  for (int id = 0; id < 4; ++id) add_processor(id, id, 0);
  write("/proc/self/cgroup", "0::/box/inner");
  write("/sys/fs/cgroup/box/inner/cpu.max", "max 100000");
  EXPECT_FALSE(read_topology(root_, {0, 1, 2, 3}).quota);
  write("/sys/fs/cgroup/box/cpu.max", "250000 100000");
  const Topology topology = read_topology(root_, {0, 1, 2, 3});
  ASSERT_TRUE(topology.quota);
  EXPECT_DOUBLE_EQ(*topology.quota, 2.5);
  EXPECT_EQ(topology.default_threads(), 2);
  write("/sys/fs/cgroup/box/inner/cpu.max", "50000 100000");
  EXPECT_EQ(read_topology(root_, {0, 1, 2, 3}).default_threads(), 1);
}

TEST_F(FakeMachine, TheQuotaOfAContainersOwnMountIsFound) {
  write("/proc/self/cgroup", "0::/../elsewhere");
  write("/sys/fs/cgroup/cpu.max", "150000 100000");
  EXPECT_DOUBLE_EQ(read_topology(root_, {0, 1, 2, 3}).quota.value_or(0), 1.5);
}

TEST_F(FakeMachine, TheOlderControlGroupsAreReadToo) {
  write("/proc/self/cgroup", "9:name=systemd:/\n2:cpuacct:/\n1:cpu:/box\n0::/");
  write("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000");
  EXPECT_FALSE(read_topology(root_, {0, 1}).quota);
  write("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000");
  EXPECT_EQ(read_topology(root_, {0, 1}).default_threads(), 1);
}

TEST_F(FakeMachine, AMachineThatSaysNothingIsTakenToBeSimple) {
  const Topology topology = read_topology(root_, {0, 1, 2});
  EXPECT_EQ(topology.name, "unknown");
  EXPECT_EQ(topology.cores(), 3);
  EXPECT_EQ(topology.l2_bytes, 0u);
}

TEST_F(FakeMachine, NonsenseInItsFilesDoesNoHarm) {
  add_processor(0, 0, 0);
  write("/sys/devices/system/cpu/cpu0/topology/core_id", "zero");
  write("/sys/devices/system/cpu/cpu0/cache/index2/size", "");
  write("/proc/self/cgroup", "nothing\n0:\n::\n0::");
  write("/sys/fs/cgroup/cpu.max", "1 0");
  const Topology topology = read_topology(root_, {0});
  EXPECT_EQ(topology.cores(), 1);
  EXPECT_EQ(topology.l2_bytes, 0u);
  EXPECT_FALSE(topology.quota);
}

TEST(Topology, OfThisMachineIsPlausible) {
  const Topology topology = read_topology();
  ASSERT_FALSE(topology.processors.empty());
  EXPECT_GE(topology.default_threads(), 1);
  EXPECT_LE(topology.cores(), static_cast<int>(topology.processors.size()));
}

}  // namespace
}  // namespace moetune::cpu

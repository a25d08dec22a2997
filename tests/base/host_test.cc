#include "base/host.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace moetune {
namespace {

TEST(Host, MemoryAndCacheArePlausibleWhereTheSystemTells) {
  if (!std::filesystem::exists("/proc/meminfo")) GTEST_SKIP() << "no /proc here";
  EXPECT_GT(host_available_memory_bytes(), size_t{1} << 20);
  EXPECT_LT(host_available_memory_bytes(), size_t{1} << 50);
  EXPECT_LT(host_last_level_cache_bytes(), size_t{1} << 40);
  if (std::filesystem::exists("/sys/devices/system/cpu/cpu0/cache/index0/size")) {
    EXPECT_GE(host_last_level_cache_bytes(), size_t{1} << 12);
  }
}

TEST(Host, TheProcessorHasANameOnOneLine) {
  EXPECT_EQ(host_processor_name().find('\n'), std::string::npos);
  EXPECT_EQ(host_processor_name(), host_processor_name());
}

}  // namespace
}  // namespace moetune

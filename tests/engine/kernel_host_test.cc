#include "engine/kernel_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ParseHosts, TellsOwnKernelsNamesAndCommandsApart) {
  const auto hosts = parse_hosts("moetune,vllm,python3 /tmp/my host.py");
  ASSERT_TRUE(hosts.ok());
  ASSERT_EQ(hosts->size(), 3u);
  EXPECT_TRUE((*hosts)[0].is_own());
  EXPECT_EQ((*hosts)[1].name, "vllm");
  EXPECT_THAT((*hosts)[1].command[2], HasSubstr("-m moetune.host vllm \"$@\""));
  EXPECT_THAT((*hosts)[2].command[2], EndsWith("exec python3 /tmp/my host.py \"$@\""));
}

TEST(QuotedForShell, KeepsEveryWordOne) {
  EXPECT_EQ(quoted_for_shell("a b"), "'a b'");
  EXPECT_EQ(quoted_for_shell("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(ParseHosts, RefusesEmptyAndRepeatedNames) {
  for (const char* text : {"", ",", "vllm,", " ", "vllm,vllm", "moetune,moetune"}) {
    const auto hosts = parse_hosts(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_EQ(hosts.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace moetune

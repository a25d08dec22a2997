#include "base/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moetune {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> script(const std::string& text) { return {"/bin/sh", "-c", text}; }

TEST(ChildProcess, HelpersAreLookedForBesideTheProgramAndTheLibrary) {
  EXPECT_THAT(helper_places("/opt/m/bin/moetune", "/opt/m/bin/moetune"),
              ElementsAre("/opt/m/bin", "/opt/m/libexec/moetune"));
  EXPECT_THAT(helper_places("/usr/bin/python3", "/opt/m/lib/x86_64-linux-gnu/libmoetune.so.1"),
              ElementsAre("/usr/bin", "/usr/libexec/moetune", "/opt/m/lib/libexec/moetune",
                          "/opt/m/libexec/moetune", "/opt/libexec/moetune", "/libexec/moetune"));
  EXPECT_THAT(helper_places("/usr/bin/python3", "/opt/m/lib/libmoetune.so.1"),
              Contains("/opt/m/libexec/moetune"));
  EXPECT_THAT(helper_places("/usr/bin/python3",
                            "/v/lib/python3.11/site-packages/moetune/lib/libmoetune.so.1"),
              Contains("/v/libexec/moetune"));
}

TEST(ChildProcess, AMissingProgramIsNamed) {
  auto ends = make_socket_pair();
  const auto started = ChildProcess::start({"/nonexistent/helper"}, ends->second.get());
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(started.error().message, HasSubstr("/nonexistent/helper"));
}

TEST(ChildProcess, SaysHowItEnded) {
  for (const auto& [text, how] : {std::pair{"exit 3", "ended with status 3"},
                                  std::pair{"kill -SEGV $$", "died of signal 11"}}) {
    auto ends = make_socket_pair();
    auto child = ChildProcess::start(script(text), ends->second.get());
    ASSERT_TRUE(child.ok());
    const ChildProcess::End end = child->end(20s);
    EXPECT_TRUE(end.by_itself);
    EXPECT_THAT(end.text, HasSubstr(how));
    EXPECT_EQ(end.signal, end.text.find("signal") == std::string::npos ? 0 : SIGSEGV);
    EXPECT_EQ(child->pid(), -1);
  }
}

TEST(ChildProcess, HasItsSocketAndNothingElse) {
  auto ends = make_socket_pair();
  const Descriptor other(::dup(0));
  auto child =
      ChildProcess::start(script("ls /proc/self/fd | tr '\\n' ' ' >&3"), ends->second.get());
  ASSERT_TRUE(child.ok());
  ends->second.reset();
  EXPECT_TRUE(child->end(20s).by_itself);
  char text[100] = {};
  EXPECT_GT(::read(ends->first.get(), text, sizeof text - 1), 0);
  EXPECT_STREQ(text, "0 1 2 3 4 ") << "4 is the folder itself";
}

TEST(ChildProcess, IsKilledWithWhatItStarted) {
  auto ends = make_socket_pair();
  auto child = ChildProcess::start(script("sleep 100 & echo >&3; wait"), ends->second.get());
  ASSERT_TRUE(child.ok());
  ends->second.reset();
  char byte = 0;
  ASSERT_EQ(::read(ends->first.get(), &byte, 1), 1);
  const ChildProcess::End end = child->end(10ms);
  EXPECT_FALSE(end.by_itself);
  EXPECT_THAT(end.text, HasSubstr("signal 9"));
  // Its other process held the socket too: closed when both are gone.
  pollfd closed{ends->first.get(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&closed, 1, 10000), 1);
}

TEST(ChildProcess, SomebodyElseMayWaitForIt) {
  auto ends = make_socket_pair();
  auto child = ChildProcess::start(script("exit 0"), ends->second.get());
  ASSERT_TRUE(child.ok());
  ASSERT_EQ(::waitpid(child->pid(), nullptr, 0), child->pid());
  EXPECT_EQ(child->end().text, "ended");
}

}  // namespace
}  // namespace moetune

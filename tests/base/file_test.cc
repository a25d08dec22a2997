#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "base/descriptor.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "file_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string in_folder(const std::string& name) const { return folder_ + "/" + name; }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

TEST_F(FileTest, WhatWasWrittenIsReadBackAndNothingElseIsLeftInTheFolder) {
  const std::string content("line\n\0binary", 12);
  ASSERT_TRUE(replace_file(in_folder("a"), content).ok());
  ASSERT_TRUE(replace_file(in_folder("a"), content + "2").ok());
  const auto read = read_file(in_folder("a"), 1000);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, content + "2");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileTest, AMissingFileAFolderAndAFileOverTheLimitAreNamed) {
  const auto missing = read_file(in_folder("none"), 10);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("none"), std::string::npos);

  const auto folder = read_file(folder_, 10);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);

  ASSERT_TRUE(replace_file(in_folder("big"), "12345678901").ok());
  const auto big = read_file(in_folder("big"), 10);
  ASSERT_FALSE(big.ok());
  EXPECT_NE(big.error().message.find("10 bytes"), std::string::npos);
}

TEST_F(FileTest, AFileWithoutASizeIsReadToItsEnd) {
  const auto status = read_file("/proc/self/status", 1 << 20);
  ASSERT_TRUE(status.ok());
  EXPECT_NE(status->find("Name:"), std::string::npos);
  EXPECT_FALSE(read_file("/dev/zero", 1 << 20).ok()) << "an endless file ends at the limit";
}

TEST_F(FileTest, ReplacingKeepsPermissionsAndFollowsALink) {
  ASSERT_TRUE(replace_file(in_folder("real"), "old").ok());
  ASSERT_EQ(::chmod(in_folder("real").c_str(), 0600), 0);
  fs::create_symlink(in_folder("real"), in_folder("link"));
  ASSERT_TRUE(replace_file(in_folder("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(in_folder("link")));
  EXPECT_EQ(*read_file(in_folder("real"), 10), "new");
  EXPECT_EQ(mode_of(in_folder("real")), 0600u);
}

TEST_F(FileTest, AFailedReplacementLeavesTheOldFileAndNoOther) {
  ASSERT_TRUE(replace_file(in_folder("a"), "old").ok());
  const Status into_missing = replace_file(in_folder("no/such/a"), "new");
  ASSERT_FALSE(into_missing.ok());
  EXPECT_EQ(into_missing.error().code, ErrorCode::kNotFound);
  const Status over_folder = replace_file(folder_, "new");
  ASSERT_FALSE(over_folder.ok());
  EXPECT_EQ(over_folder.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(*read_file(in_folder("a"), 10), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileTest, AFullDiskIsAnErrorThatSaysSo) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Status status = replace_file("/dev/full", "x");
  ASSERT_FALSE(status.ok());
}

TEST_F(FileTest, FoldersAreMadeForTheirOwnerOnlyAndExistingOnesAreLeftAlone) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_TRUE(make_private_folders(in_folder("a/b")).ok());
  EXPECT_EQ(mode_of(in_folder("a")), 0700u);
  EXPECT_EQ(mode_of(in_folder("a/b")), 0700u);
  EXPECT_EQ(mode_of(folder_), 0755u);
  EXPECT_TRUE(make_private_folders(in_folder("a/b/")).ok());
  EXPECT_TRUE(make_private_folders("/").ok());
  EXPECT_TRUE(make_private_folders(".").ok());

  ASSERT_TRUE(replace_file(in_folder("file"), "x").ok());
  EXPECT_FALSE(make_private_folders(in_folder("file")).ok());
  EXPECT_FALSE(make_private_folders(in_folder("file/below")).ok());
}

TEST_F(FileTest, ParentFolder) {
  EXPECT_EQ(parent_folder("a"), ".");
  EXPECT_EQ(parent_folder("/a"), "/");
  EXPECT_EQ(parent_folder("/a/b.json"), "/a");
  EXPECT_EQ(parent_folder("a/b/c"), "a/b");
}

TEST_F(FileTest, ALockExcludesAnotherAndIsFreeAfterwards) {
  {
    auto held = FileLock::acquire(in_folder("lock"), milliseconds(0));
    ASSERT_TRUE(held.ok());
    const auto refused = FileLock::acquire(in_folder("lock"), milliseconds(20));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kDeadline);
    const FileLock moved = std::move(held).value();
    EXPECT_FALSE(FileLock::acquire(in_folder("lock"), milliseconds(0)).ok());
  }
  EXPECT_TRUE(FileLock::acquire(in_folder("lock"), milliseconds(0)).ok());
}

TEST_F(FileTest, WhoTakesALockAgainAndAgainLetsOthersHaveIt) {
  std::atomic<int> taken{0};
  std::atomic<bool> done{false};
  std::thread greedy([&] {
    for (; !done; ++taken) {
      const auto held = FileLock::acquire(in_folder("lock"), seconds(60));
      EXPECT_TRUE(held.ok());
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  while (taken == 0) std::this_thread::yield();
  // It has the lock when somebody asks for it, and may have it once more until that one has the
  // turn. Without turns it would be without the lock for microseconds of every 20 ms.
  constexpr int kRounds = 50;
  const int before = taken;
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_TRUE(FileLock::acquire(in_folder("lock"), seconds(60)).ok());
  }
  const int meanwhile = taken - before;
  done = true;
  greedy.join();
  EXPECT_LE(meanwhile, 2 * kRounds);
}

TEST_F(FileTest, AStoppedProcessThatHasTheTurnHoldsNobodyUp) {
  const Descriptor waiter(::open(in_folder("lock").c_str(), O_RDWR | O_CREAT, 0644));
  ASSERT_TRUE(waiter.ok());
  struct flock turn = {};
  turn.l_type = F_WRLCK;
  turn.l_start = 1;
  turn.l_len = 1;
  ASSERT_EQ(::fcntl(waiter.get(), F_OFD_SETLK, &turn), 0);
  EXPECT_TRUE(FileLock::acquire(in_folder("lock"), milliseconds(100)).ok());
}

TEST_F(FileTest, ALockOfAKilledProcessIsFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = FileLock::acquire(in_folder("lock"), milliseconds(0));
    const char held = lock.ok() ? 'y' : 'n';
    if (::write(ready[1], &held, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char held = 'n';
  ASSERT_EQ(::read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_FALSE(FileLock::acquire(in_folder("lock"), milliseconds(0)).ok());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(FileLock::acquire(in_folder("lock"), milliseconds(0)).ok());
}

}  // namespace
}  // namespace moetune

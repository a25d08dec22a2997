#include "cuda/cubin_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Content = std::vector<uint8_t>;

constexpr int64_t kPlenty = int64_t{1} << 30;

class CubinCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "cubin_cache_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    fs::permissions(root_ / "jit", fs::perms::owner_all, ignored_);
    fs::remove_all(root_, ignored_);
  }

  std::string folder() const { return (root_ / "jit").string(); }
  fs::path entry(const std::string& key) const { return root_ / "jit" / (key + ".cubin"); }

  CubinCache open(int64_t max_bytes = kPlenty) {
    auto cache = CubinCache::open(folder(), max_bytes);
    EXPECT_TRUE(cache.ok()) << cache.error().message;
    return std::move(*cache);
  }

  fs::path root_;
  std::error_code ignored_;
};

Content content_of(int index, size_t bytes = 5000) {
  Content content(bytes);
  std::mt19937 random(static_cast<unsigned>(index));
  for (uint8_t& byte : content) byte = static_cast<uint8_t>(random());
  return content;
}

std::string key_of(int index) {
  const std::string digits = std::to_string(index);
  return std::string(64 - digits.size(), '0') + digits;
}

TEST_F(CubinCacheTest, GivesBackWhatWasStored) {
  CubinCache cache = open();
  EXPECT_FALSE(cache.find(key_of(1)).content);
  ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
  ASSERT_TRUE(cache.put(key_of(2), {}).ok());
  EXPECT_EQ(cache.find(key_of(1)).content, content_of(1));
  EXPECT_EQ(cache.find(key_of(2)).content, Content());
  EXPECT_EQ(open().find(key_of(1)).content, content_of(1)) << "another process sees it too";
}

TEST_F(CubinCacheTest, IsReadableByItsOwnerOnly) {
  CubinCache cache = open();
  ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
  struct stat status {};
  ASSERT_EQ(::stat(folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat(entry(key_of(1)).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(CubinCacheTest, ReplacesADamagedEntryAndSaysSo) {
  CubinCache cache = open();
  const auto damage = [&](auto change) {
    ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
    change(entry(key_of(1)));
    const CubinCache::Found found = cache.find(key_of(1));
    EXPECT_FALSE(found.content);
    EXPECT_THAT(found.note, HasSubstr("damaged"));
    EXPECT_FALSE(fs::exists(entry(key_of(1))));
  };
  damage([](const fs::path& file) { fs::resize_file(file, 3000); });
  damage([](const fs::path& file) { fs::resize_file(file, 0); });
  damage([](const fs::path& file) {
    std::ofstream(file) << "something else altogether, and long enough to hold a header";
  });
  damage([](const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(2000);
    stream.put('!').put('?');
  });
}

TEST_F(CubinCacheTest, DoesNotTakeOneEntryForAnother) {
  CubinCache cache = open();
  ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
  fs::copy_file(entry(key_of(1)), entry(key_of(2)));
  fs::permissions(entry(key_of(2)), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(cache.find(key_of(2)).content);
}

TEST_F(CubinCacheTest, RefusesAFolderThatOthersCanWrite) {
  ASSERT_TRUE(open().put(key_of(1), content_of(1)).ok());
  for (const mode_t mode : {0720, 0702, 0777}) {
    ASSERT_EQ(::chmod(folder().c_str(), mode), 0);
    const auto cache = CubinCache::open(folder(), kPlenty);
    ASSERT_FALSE(cache.ok()) << mode;
    EXPECT_EQ(cache.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(cache.error().message, HasSubstr("can be written by others"));
  }
}

TEST_F(CubinCacheTest, RefusesWhatAnotherUserOwns) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  CubinCache cache = open();
  ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
  ASSERT_EQ(::chown(entry(key_of(1)).c_str(), 12345, 12345), 0);
  const CubinCache::Found found = cache.find(key_of(1));
  EXPECT_FALSE(found.content);
  EXPECT_THAT(found.note, HasSubstr("belongs to user 12345"));
  ASSERT_EQ(::chown(folder().c_str(), 12345, 12345), 0);
  EXPECT_FALSE(CubinCache::open(folder(), kPlenty).ok());
}

TEST_F(CubinCacheTest, IgnoresEntriesThatOthersCanWriteAndLinks) {
  CubinCache cache = open();
  ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
  fs::create_symlink(entry(key_of(1)), entry(key_of(2)));
  EXPECT_FALSE(cache.find(key_of(2)).content);
  ASSERT_EQ(::chmod(entry(key_of(1)).c_str(), 0606), 0);
  const CubinCache::Found found = cache.find(key_of(1));
  EXPECT_FALSE(found.content);
  EXPECT_THAT(found.note, HasSubstr("can be written by others"));
}

// Root writes everywhere: it becomes somebody else while this lives.
class NotRoot {
 public:
  explicit NotRoot(const fs::path& home) : was_root_(::geteuid() == 0) {
    if (!was_root_) return;
    EXPECT_EQ(::chown(home.c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(::seteuid(kNobody), 0);
  }
  ~NotRoot() {
    if (was_root_ && ::seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }

 private:
  static constexpr uid_t kNobody = 65534;
  bool was_root_;
};

TEST_F(CubinCacheTest, StillReadsWhereItCannotWrite) {
  const NotRoot user(root_);
  CubinCache cache = open();
  ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
  ASSERT_EQ(::chmod(folder().c_str(), 0500), 0);
  const Status stored = cache.put(key_of(2), content_of(2));
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.error().code, ErrorCode::kIo);
  EXPECT_THAT(stored.error().message, HasSubstr(folder()));
  EXPECT_EQ(cache.find(key_of(1)).content, content_of(1));
}

TEST_F(CubinCacheTest, AFileInTheFoldersPlaceIsAnError) {
  std::ofstream(root_ / "jit") << "not a folder";
  EXPECT_FALSE(CubinCache::open(folder(), kPlenty).ok());
}

TEST_F(CubinCacheTest, StaysBelowItsLimitAndKeepsWhatWasUsedLast) {
  constexpr int64_t kLimit = 100'000;
  CubinCache cache = open(kLimit);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(cache.put(key_of(i), content_of(i)).ok());
    // An old entry that is still in use: its mark is older than a minute, so reading sets it anew.
    const fs::path kept = entry(key_of(0));
    fs::last_write_time(kept, fs::file_time_type::clock::now() - std::chrono::hours(1));
    ASSERT_TRUE(cache.find(key_of(0)).content) << i;
    int64_t bytes = 0;
    for (const auto& file : fs::directory_iterator(folder()))
      bytes += static_cast<int64_t>(file.file_size());
    EXPECT_LE(bytes, kLimit) << i;
  }
  EXPECT_TRUE(cache.find(key_of(59)).content);
  EXPECT_FALSE(cache.find(key_of(1)).content);
}

TEST_F(CubinCacheTest, RemovesWhatKilledProcessesLeftHalfWritten) {
  CubinCache cache = open();
  const fs::path old_file = root_ / "jit" / ".new-1-0-abandoned";
  const fs::path fresh_file = root_ / "jit" / ".new-2-0-at_work";
  std::ofstream(old_file) << "half";
  std::ofstream(fresh_file) << "half";
  fs::last_write_time(old_file, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(cache.put(key_of(1), content_of(1)).ok());
  EXPECT_FALSE(fs::exists(old_file));
  EXPECT_TRUE(fs::exists(fresh_file));
}

// Writes and reads until it is killed; ends with 1 if it ever reads something that was not stored.
[[noreturn]] void hammer(const std::string& folder, int seed) {
  auto cache = CubinCache::open(folder, 400'000);
  if (!cache.ok()) ::_exit(2);
  std::mt19937 random(static_cast<unsigned>(seed));
  while (true) {
    const int index = static_cast<int>(random() % 100);
    if (random() % 2 == 0) {
      (void)cache->put(key_of(index), content_of(index));
    } else if (const auto found = cache->find(key_of(index));
               found.content && *found.content != content_of(index)) {
      ::_exit(1);
    } else if (!found.note.empty()) {
      ::_exit(3);  // A damaged entry: nobody ever sees a part of one.
    }
  }
}

TEST_F(CubinCacheTest, EightProcessesThatAreKilledAtAnyMomentHarmNothing) {
  std::mt19937 random(5);
  for (int round = 0; round < 6; ++round) {
    std::vector<pid_t> processes;
    for (int i = 0; i < 8; ++i) {
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) hammer(folder(), round * 8 + i);
      processes.push_back(pid);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 60));
    for (const pid_t pid : processes) ::kill(pid, SIGKILL);
    for (const pid_t pid : processes) {
      int status = 0;
      ASSERT_EQ(::waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFSIGNALED(status))
          << "a process ended by itself with status " << WEXITSTATUS(status);
    }
  }
  CubinCache cache = open();
  int found_entries = 0;
  for (int i = 0; i < 100; ++i) {
    const CubinCache::Found found = cache.find(key_of(i));
    EXPECT_EQ(found.note, "");
    if (!found.content) continue;
    EXPECT_EQ(*found.content, content_of(i));
    ++found_entries;
  }
  EXPECT_GT(found_entries, 0);
}

}  // namespace
}  // namespace moetune::cuda

#include "cuda/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "cuda/nvrtc.h"

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kSoname = "libmoetune_test.so.1";

// Sets environment variables and puts them back.
class Environment {
 public:
  void set(const char* name, const std::string& value) {
    const char* before = std::getenv(name);
    before_.try_emplace(name, before ? std::optional<std::string>(before) : std::nullopt);
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

class SharedLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "library_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    environment_.set("HOME", (root_ / "home").string());
    environment_.set("PATH", (root_ / "env" / "bin").string());
    for (const char* name :
         {"MOETUNE_CUDA_PATH", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"}) {
      environment_.set(name, "");
    }
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string make_file(const fs::path& path) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "no library";
    return (root_ / path).string();
  }

  fs::path root_;
  Environment environment_;
};

TEST_F(SharedLibraryTest, TheUsersFoldersComeBeforeTheSystems) {
  const std::string first = make_file(fs::path("a") / kSoname);
  const std::string second = make_file(fs::path("b/lib64") / kSoname);
  environment_.set("MOETUNE_CUDA_PATH", (root_ / "a").string() + ":" + (root_ / "b").string());
  EXPECT_THAT(library_candidates(kSoname), ::testing::ElementsAre(first, second, kSoname));
}

TEST_F(SharedLibraryTest, ToolkitsAndPythonPackagesAreSearched) {
  const fs::path package = fs::path("lib/python3.12/site-packages/nvidia/cu13/lib") / kSoname;
  const std::string toolkit = make_file(fs::path("toolkit/lib64") / kSoname);
  const std::string conda = make_file("conda" / package);
  const std::string on_path = make_file("env" / package);
  const std::string of_user = make_file("home/.local" / package);
  const std::string python_path = make_file(fs::path("extra/nvidia/cuda_nvrtc/lib") / kSoname);
  make_file("env/bin/python3");
  environment_.set("CUDA_HOME", (root_ / "toolkit").string());
  environment_.set("CONDA_PREFIX", (root_ / "conda").string());
  environment_.set("PYTHONPATH", (root_ / "extra").string());
  const auto found = library_candidates(kSoname);
  EXPECT_EQ(found.front(), kSoname);
  for (const std::string& path : {toolkit, conda, on_path, of_user, python_path})
    EXPECT_THAT(found, Contains(path));
}

TEST_F(SharedLibraryTest, PackagesOfAnEnvironmentAndOfItsBaseInstallationAreSearched) {
  const fs::path package = fs::path("lib/python3.12/site-packages/nvidia/cu13/lib") / kSoname;
  const std::string base = make_file("base" / package);
  const std::string of_environment = make_file("env" / package);
  make_file("base/bin/python3");
  fs::create_directories(root_ / "env/bin");
  fs::create_symlink(root_ / "base/bin/python3", root_ / "env/bin/python3");
  const auto found = library_candidates(kSoname);
  EXPECT_THAT(found, Contains(of_environment));
  EXPECT_THAT(found, Contains(base));
}

TEST_F(SharedLibraryTest, AFileThatDoesNotOpenIsNamed) {
  environment_.set("MOETUNE_CUDA_PATH", (root_ / "a").string());
  const std::string file = make_file(fs::path("a") / kSoname);
  const auto library = open_library(kSoname);
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(library.error().message, HasSubstr(file));
}

TEST_F(SharedLibraryTest, ALibraryThatIsNowhereIsNotFound) {
  const auto library = open_library("libmoetune_nowhere.so.1");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(library.error().message, HasSubstr("libmoetune_nowhere.so.1"));
}

TEST(Nvrtc, OneNewerThanTheDriverIsRefusedWithBothVersions) {
  const auto newest = find_nvrtc(0);
  if (!newest.ok()) GTEST_SKIP() << newest.error().message;
  const int older = newest->major - 1;
  const auto nvrtc = find_nvrtc(older);
  if (nvrtc.ok()) {
    EXPECT_LE(nvrtc->major, older) << "a fitting one is here too, and is taken";
    return;
  }
  EXPECT_EQ(nvrtc.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(nvrtc.error().message, HasSubstr(newest->version_text()));
  EXPECT_THAT(nvrtc.error().message, HasSubstr("newer major version than the driver"));
  EXPECT_THAT(nvrtc.error().hint, HasSubstr("pip install"));
}

TEST(Nvrtc, KnowsItsArchitectures) {
  const auto nvrtc = find_nvrtc(0);
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().message;
  EXPECT_TRUE(nvrtc->supports({9, 0}));
  EXPECT_TRUE(nvrtc->supports({9, 0, 'a'}));
  EXPECT_FALSE(nvrtc->supports({99, 9}));
}

TEST(Nvrtc, ALibraryOfAnotherKindIsRefused) {
  const auto library = SharedLibrary::open("libc.so.6");
  ASSERT_TRUE(library.ok());
  const auto nvrtc = bind_nvrtc(*library);
  ASSERT_FALSE(nvrtc.ok());
  EXPECT_THAT(nvrtc.error().message, HasSubstr("does not export nvrtcVersion"));
}

}  // namespace
}  // namespace moetune::cuda

#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

namespace moetune {
namespace {

// Sets a variable for the length of a test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value == nullptr) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value, 1);
    }
  }
  ~Setting() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(Environment, TheTableNamesAndExplainsEveryVariableOnce) {
  std::set<std::string> names;
  for (const VariableInfo& info : environment_variables()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(std::string(info.meaning).empty()) << info.name;
  }
  EXPECT_TRUE(names.contains("MOETUNE_DEFAULT"));
}

TEST(Environment, AnEmptyVariableCountsAsUnset) {
  const Setting empty("MOETUNE_CONFIG", "");
  EXPECT_EQ(environment(Variable::kConfig), std::nullopt);
  const Setting set("MOETUNE_CONFIG", "/some/file.json");
  EXPECT_EQ(environment(Variable::kConfig), "/some/file.json");
}

TEST(Environment, ASwitchIsOnUnlessItSaysNo) {
  for (const char* off : {"", "0", "false", "no", "off"}) {
    const Setting setting("MOETUNE_DEFAULT", off);
    EXPECT_FALSE(environment_switch(Variable::kDefault)) << off;
  }
  for (const char* on : {"1", "true", "yes"}) {
    const Setting setting("MOETUNE_DEFAULT", on);
    EXPECT_TRUE(environment_switch(Variable::kDefault)) << on;
  }
}

TEST(Environment, TheCacheFolderFollowsXdgThenHomeAndIgnoresRelativePaths) {
  const Setting home("HOME", "/home/someone");
  {
    const Setting xdg("XDG_CACHE_HOME", "/var/cache/someone");
    EXPECT_EQ(cache_folder(), "/var/cache/someone/moetune");
  }
  {
    const Setting xdg("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(cache_folder(), "/home/someone/.cache/moetune");
  }
  const Setting xdg("XDG_CACHE_HOME", nullptr);
  const Setting no_home("HOME", nullptr);
  EXPECT_EQ(cache_folder(), std::nullopt);
}

}  // namespace
}  // namespace moetune

#include "cuda/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/environment.h"

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split_path(const std::optional<std::string>& value) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (value && start <= value->size()) {
    const size_t end = std::min(value->find(':', start), value->size());
    if (end > start) parts.push_back(value->substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

// The entries of a folder whose name begins with `prefix`, newest version (largest name) first.
std::vector<fs::path> entries(const fs::path& folder, const std::string& prefix = {}) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

// Folders of Python packages below an installation's or environment's prefix.
void add_site_folders(const fs::path& prefix, std::vector<fs::path>& out) {
  for (const char* lib : {"lib", "lib64", "local/lib"}) {
    for (const fs::path& python : entries(prefix / lib, "python3")) {
      out.push_back(python / "site-packages");
      out.push_back(python / "dist-packages");
    }
  }
}

std::vector<fs::path> site_folders() {
  std::vector<fs::path> found;
  for (const std::string& folder : split_path(environment(Variable::kPythonPath))) {
    found.emplace_back(folder);
  }
  for (const Variable variable : {Variable::kVirtualEnv, Variable::kCondaPrefix}) {
    if (const auto prefix = environment(variable)) add_site_folders(*prefix, found);
  }
  for (const fs::path folder : split_path(environment(Variable::kPath))) {
    std::error_code error;
    if (!fs::exists(folder / "python3", error)) continue;
    // An environment's python3 is a link: its packages are beside the link, the base installation's
    // beside the target.
    add_site_folders(folder.parent_path(), found);
    const fs::path target = fs::canonical(folder / "python3", error);
    if (!error) add_site_folders(target.parent_path().parent_path(), found);
    // pyenv puts scripts on the PATH instead of links.
    if (folder.filename() == "shims") {
      for (const fs::path& version : entries(folder.parent_path() / "versions")) {
        add_site_folders(version, found);
      }
    }
  }
  if (const auto home = environment(Variable::kHome)) add_site_folders(*home + "/.local", found);
  return found;
}

class Candidates {
 public:
  explicit Candidates(std::string soname) : soname_(std::move(soname)) {}

  void add_file(const fs::path& folder) {
    std::error_code error;
    const std::string path = (folder / soname_).string();
    if (fs::exists(path, error) && std::find(found_.begin(), found_.end(), path) == found_.end()) {
      found_.push_back(path);
    }
  }
  void add_toolkit(const fs::path& root) {
    add_file(root / "lib64");
    add_file(root / "lib");
  }
  void add_name() { found_.push_back(soname_); }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::string soname_;
  std::vector<std::string> found_;
};

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return Error{ErrorCode::kNotFound, reason ? reason : fmt::format("cannot open {}", name)};
  }
  std::string path = name;
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0') path = map->l_name;
  return SharedLibrary(handle, std::move(path));
}

void* SharedLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

std::vector<std::string> library_candidates(const std::string& soname) {
  Candidates candidates(soname);
  for (const std::string& folder : split_path(environment(Variable::kCudaPath))) {
    candidates.add_file(folder);
    candidates.add_toolkit(folder);
  }
  candidates.add_name();
  // Containers and WSL mount the driver here, not always with the loader's knowledge.
  for (const char* folder : {"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"}) {
    candidates.add_file(folder);
  }
  if (const auto home = environment(Variable::kCudaHome)) candidates.add_toolkit(*home);
  for (const fs::path& toolkit : entries("/usr/local", "cuda")) candidates.add_toolkit(toolkit);
  for (const fs::path& site : site_folders()) {
    for (const fs::path& package : entries(site / "nvidia")) candidates.add_file(package / "lib");
  }
  return candidates.take();
}

Result<SharedLibrary> open_library(const std::string& soname) {
  Error last{ErrorCode::kNotFound, fmt::format("{} was not found", soname)};
  bool named_file_failed = false;
  for (const std::string& candidate : library_candidates(soname)) {
    auto library = SharedLibrary::open(candidate);
    if (library.ok()) return library;
    // A file that is there and does not open says more than a name that leads nowhere.
    if (candidate != soname || !named_file_failed) last = std::move(library).error();
    named_file_failed |= candidate != soname;
  }
  return last;
}

}  // namespace moetune::cuda

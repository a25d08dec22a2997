// fuzz_replay TARGET FOLDER...: runs every file of the folders through a target, each file's name
// first, so that a crash names its input. Needs no libFuzzer.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/fuzz_target.h"

namespace moetune::fuzz {
namespace {

std::vector<std::filesystem::path> files_of(int count, char** folders) {
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < count; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folders[i]))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int replay(Run run, const std::vector<std::filesystem::path>& files) {
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    std::printf("%s (%zu bytes)\n", path.filename().c_str(), input.size());
    std::fflush(stdout);
    run(input);
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;
}

}  // namespace
}  // namespace moetune::fuzz

int main(int argc, char** argv) {
  using moetune::fuzz::targets;
  for (const auto& target : targets()) {
    if (argc > 2 && std::strcmp(argv[1], target.name) == 0)
      return moetune::fuzz::replay(target.run, moetune::fuzz::files_of(argc - 2, argv + 2));
  }
  std::fprintf(stderr, "Usage: fuzz_replay TARGET FOLDER...\nTargets:");
  for (const auto& target : targets()) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  return 2;
}

// A fuzz target: a function that does with any bytes what a program does with them, and ends the
// process where something that must hold does not. One file per target; two programs are made of
// them: fuzz_TARGET with libFuzzer (preset `fuzz`), and fuzz_replay, which runs the corpus of every
// target in every ordinary build.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::fuzz {

using Run = void (*)(std::string_view input);

struct Target {
  const char* name;
  Run run;
};

/// Of this program.
inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

/// Adds a target before main(): one at the end of each file.
struct Register {
  Register(const char* name, Run run) { targets().push_back({name, run}); }
};

/// What must hold whatever the input is, in every build type.
inline void require(bool holds, std::string_view what, std::string_view details = {}) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n%s\n", std::string(what).c_str(),
               std::string(details).c_str());
  std::abort();
}

/// Takes what is before the first `mark` off the front; everything where there is none.
inline std::string_view take_until(std::string_view& input, std::string_view mark) {
  const size_t end = input.find(mark);
  const std::string_view taken = input.substr(0, end);
  input = end == std::string_view::npos ? std::string_view() : input.substr(end + mark.size());
  return taken;
}

/// Takes the first byte off; 0 where nothing is left.
inline unsigned char take_byte(std::string_view& input) {
  if (input.empty()) return 0;
  const auto byte = static_cast<unsigned char>(input.front());
  input.remove_prefix(1);
  return byte;
}

}  // namespace moetune::fuzz

#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/environment.h"
#include "base/system_error.h"

namespace moetune::cli {
namespace {

void write(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace

Output::Output(bool json)
    : json_(json), colour_(::isatty(STDERR_FILENO) == 1 && !environment(Variable::kNoColor)) {}

void Output::text(std::string_view text) {
  if (!json_) write(stdout, text);
}

void Output::object(const Json& object) {
  if (json_) write(stdout, print_json(object));
}

void Output::note(std::string_view line) { write(stderr, fmt::format("{}\n", line)); }

void Output::error(const Error& error) {
  if (json_) {
    return object(
        {{"error",
          {{"code", to_string(error.code)}, {"message", error.message}, {"hint", error.hint}}}});
  }
  const char* red = colour_ ? "\x1b[31m" : "";
  const char* plain = colour_ ? "\x1b[0m" : "";
  note(fmt::format("{}error:{} {}", red, plain, error.message));
  if (!error.hint.empty()) note(fmt::format("hint: {}", error.hint));
}

Status Output::finish() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return Error{ErrorCode::kIo,
               fmt::format("cannot write to stdout: {}", error_text(errno != 0 ? errno : EIO)),
               "what was printed is not complete; is the disk full?"};
}

}  // namespace moetune::cli

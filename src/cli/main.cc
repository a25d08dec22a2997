#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/parser.h"
#include "cli/version.h"

namespace moetune::cli {
namespace {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_tune_command());
  commands.push_back(make_bench_command());
  commands.push_back(make_compare_command());
  commands.push_back(make_show_command());
  commands.push_back(make_explain_command());
  commands.push_back(make_verify_command());
  commands.push_back(make_export_command());
  commands.push_back(make_audit_command());
  commands.push_back(make_devices_command());
  commands.push_back(make_journal_list_command());
  commands.push_back(make_journal_prune_command());
  commands.push_back(make_journal_export_command());
  commands.push_back(make_journal_import_command());
  return commands;
}

Result<Exit> run(Output& output, Command& command) {
  // Nothing of ours throws on bad input; what is left is memory, and bugs, which must not look like
  // a crash.
  try {
    return command.run(output);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory, "out of memory",
                 "try --weights nvfp4, --ep or --tp, or a machine with more memory"};
  } catch (const std::exception& exception) {
    return Error{ErrorCode::kInternal, std::string("a bug of moetune: ") + exception.what(),
                 "please report it with the command line"};
  }
}

int main_of(std::vector<std::string> arguments) {
  // Before anything is parsed: an error in parsing is to be printed as asked, too.
  bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  Output output(json);
  const auto commands = all_commands();
  Result<ParsedLine> line = parse_line(std::move(arguments), commands, version_text(), &json);
  if (!line.ok()) {
    output.error(line.error());
    return static_cast<int>(exit_for(line.error()));
  }
  if (line->command == nullptr) {
    Output(false).text(line->text);
    return static_cast<int>(Exit::kDone);
  }
  Result<Exit> exit = run(output, *line->command);
  if (exit.ok()) {
    Status written = output.finish();
    if (!written.ok()) exit = std::move(written).error();
  }
  if (exit.ok()) return static_cast<int>(*exit);
  output.error(exit.error());
  std::fflush(stdout);
  return static_cast<int>(exit_for(exit.error()));
}

}  // namespace
}  // namespace moetune::cli

int main(int argc, char** argv) {
  return moetune::cli::main_of({argv + std::min(argc, 1), argv + argc});
}

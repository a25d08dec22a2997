// A command of the program: its flags, its help, and what it does. One file each: command_tune.cc,
// ...
//
// Flags arrive as text and are read by values.h, so that every message about them looks the same;
// the library that parses the command line, which throws, is known to parser.cc only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/exit.h"
#include "cli/output.h"
#include "moetune/result.h"

namespace moetune::cli {

/// One flag or positional argument and where its text goes.
struct Flag {
  std::string name;         ///< "--tokens", or "MODEL" for a positional argument.
  std::string placeholder;  ///< Of its value in the help: "LIST"; empty for switches and positional
                            ///< arguments.
  std::string help;
  std::string* text = nullptr;
  bool* on = nullptr;     ///< Of a switch.
  bool required = false;  ///< Of a positional argument.
};

class Flags {
 public:
  void positional(const char* name, std::string* text, const char* help, bool required = true) {
    flags_.push_back({.name = name, .help = help, .text = text, .required = required});
  }
  void value(const char* name, const char* placeholder, std::string* text, const char* help) {
    flags_.push_back({.name = name, .placeholder = placeholder, .help = help, .text = text});
  }
  void toggle(const char* name, bool* on, const char* help) {
    flags_.push_back({.name = name, .help = help, .on = on});
  }
  const std::vector<Flag>& all() const { return flags_; }

 private:
  std::vector<Flag> flags_;
};

class Command {
 public:
  virtual ~Command() = default;
  /// One word, or two: "journal list" is `list` in the group `journal`.
  virtual const char* name() const = 0;
  /// Of the group, one line; the first command of a group says it.
  virtual const char* group_summary() const { return ""; }
  /// One line.
  virtual const char* summary() const = 0;
  /// Command lines to copy, one a line.
  virtual const char* examples() const = 0;
  /// Called once, before run(); what the flags point to must live as long as the command.
  virtual void declare(Flags& flags) = 0;
  virtual Result<Exit> run(Output& output) = 0;
};

std::unique_ptr<Command> make_audit_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_compare_command();
std::unique_ptr<Command> make_devices_command();
std::unique_ptr<Command> make_explain_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_journal_export_command();
std::unique_ptr<Command> make_journal_import_command();
std::unique_ptr<Command> make_journal_list_command();
std::unique_ptr<Command> make_journal_prune_command();
std::unique_ptr<Command> make_show_command();
std::unique_ptr<Command> make_tune_command();
std::unique_ptr<Command> make_verify_command();

}  // namespace moetune::cli

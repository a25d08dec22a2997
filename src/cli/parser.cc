#include "cli/parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "base/environment.h"
#include "base/spelling.h"

namespace moetune::cli {
namespace {

std::string footer(const Command& command) {
  return fmt::format("Examples:\n{}", command.examples());
}

std::string environment_help() {
  std::string text = "Environment:\n";
  for (const VariableInfo& info : environment_variables())
    text += fmt::format("  {:<20} {}\n", info.name, info.meaning);
  text += "\nExit codes: 0 done, 1 failed, 2 usage, 130 interrupted (the best so far is saved).\n";
  text += "`moetune COMMAND --help` shows a command's flags and examples.";
  return text;
}

void add(CLI::App& app, const Flag& flag) {
  if (flag.on != nullptr) {
    app.add_flag(flag.name, *flag.on, flag.help);
    return;
  }
  CLI::Option* option = app.add_option(flag.name, *flag.text, flag.help);
  option->required(flag.required);
  // Only `--flag a --flag b` can be told from a mistake; for the parser the last one would count.
  option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  if (!flag.placeholder.empty()) option->type_name(flag.placeholder);
}

/// Where the last word of a command's name goes: the program, or its group.
CLI::App* parent_of(CLI::App& app, const Command& command, std::string& word) {
  word = command.name();
  const size_t space = word.find(' ');
  if (space == std::string::npos) return &app;
  const std::string group = word.substr(0, space);
  word.erase(0, space + 1);
  const auto known =
      app.get_subcommands([&](CLI::App* other) { return other->get_name() == group; });
  if (!known.empty()) return known.front();
  CLI::App* added = app.add_subcommand(group, command.group_summary());
  added->require_subcommand(1);
  return added;
}

CLI::App* add(CLI::App& app, Command& command, bool* json) {
  std::string word;
  CLI::App* parent = parent_of(app, command, word);
  CLI::App* sub = parent->add_subcommand(word, command.summary());
  sub->footer(footer(command));
  Flags flags;
  command.declare(flags);
  for (const Flag& flag : flags.all()) add(*sub, flag);
  sub->add_flag("--json", *json, "Print one JSON object instead of text");
  return sub;
}

/// Help on the command that was named, else on the program.
std::string help_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app.help() : chosen.front()->help(app.get_name());
}

/// What is wrong with the first words; empty where they are a command or an option. The library's
/// words for it are "A subcommand is required".
std::string unknown_command(const std::vector<std::string>& arguments,
                            const std::vector<std::unique_ptr<Command>>& commands) {
  if (arguments.empty()) return "no command is given";
  std::string name;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("-")) {
      if (i == 0) return {};
      break;
    }
    name += (i > 0 ? " " : "") + arguments[i].substr(0, 40);
    bool is_group = false;
    for (const auto& command : commands) {
      if (name == command->name()) return {};
      is_group = is_group || std::string_view(command->name()).starts_with(name + " ");
    }
    if (!is_group) return fmt::format("there is no command \"{}\"", name);
  }
  return fmt::format("\"{}\" needs another word", name);
}

// What the first flag that the command does not have was meant to be.
std::string flag_meant(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const std::vector<std::string> rest = command->remaining();
  const auto flag = std::find_if(rest.begin(), rest.end(),
                                 [](const std::string& word) { return word.starts_with("--"); });
  if (flag == rest.end()) return "";
  std::vector<std::string> flags;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return did_you_mean(flag->substr(0, flag->find('=')), flags);
}

// What the words up to the first flag were meant to be.
std::string command_meant(const std::vector<std::string>& arguments,
                          const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<std::string> known;
  for (const auto& command : commands) known.emplace_back(command->name());
  std::string words, meant;
  for (const std::string& word : arguments) {
    if (word.starts_with("-")) break;
    words += (words.empty() ? "" : " ") + word;
    if (std::string nearest = nearest_word(words, known); !nearest.empty())
      meant = "did you mean `moetune " + nearest + "`? ";
  }
  return meant;
}

Error usage(const CLI::App& app, std::string message, std::string meant) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::string where = "moetune";
  for (auto chosen = app.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    where += ' ' + chosen.front()->get_name();
  }
  return {ErrorCode::kInvalidArgument, std::move(message),
          fmt::format("{}`{} --help` shows what there is", meant, where)};
}

}  // namespace

Result<ParsedLine> parse_line(std::vector<std::string> arguments,
                              const std::vector<std::unique_ptr<Command>>& commands,
                              const std::string& version, bool* json) {
  CLI::App app(
      "moetune: Mixture-of-Experts kernels that tune themselves to the machine they wake up on.",
      "moetune");
  app.set_version_flag("--version", version, "Show the version");
  app.require_subcommand(1);
  app.footer(environment_help());
  std::vector<std::pair<CLI::App*, Command*>> added;
  for (const auto& command : commands) added.emplace_back(add(app, *command, json), command.get());

  const std::string unknown = unknown_command(arguments, commands);
  const std::string meant = unknown.empty() ? "" : command_meant(arguments, commands);
  std::reverse(arguments.begin(),
               arguments.end());  // The order in which the library takes a vector.
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForVersion&) {
    return ParsedLine{nullptr, version + '\n'};
  } catch (const CLI::CallForHelp&) {
    return ParsedLine{nullptr, help_of(app)};
  } catch (const CLI::ParseError& error) {
    if (unknown.empty()) return usage(app, error.what(), flag_meant(app));
    return usage(app, unknown, meant);
  }
  for (const auto& [sub, command] : added) {
    if (sub->parsed()) return ParsedLine{command, {}};
  }
  return usage(app, "no command is given", "");
}

}  // namespace moetune::cli

// A tuning file of vLLM's or SGLang's Triton kernels: a tactic for each of some numbers of tokens.
//
// The engines take the entry whose number is nearest, of two equally near ones the one that stands
// first in the file; numbers above the largest take the last.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/engine.h"
#include "moetune/result.h"
#include "moetune/tactic.h"

namespace moetune::exchange {

/// A value type.
struct TritonTable {
  struct Entry {
    int64_t tokens = 0;  ///< At least 1.
    Tactic tactic;       ///< By the engine's own names, as the file has them; switches are 0 or 1.
    bool operator==(const Entry&) const = default;
  };

  std::vector<Entry> entries;  ///< In the order of the file; at least one, no number twice.
  std::string triton_version;  ///< What it was tuned with; empty where the file does not say.

  bool operator==(const TritonTable&) const = default;

  /// The entry that an engine takes for that many tokens.
  const Entry& nearest(int64_t tokens) const;
  /// Entries by ascending number of tokens.
  std::vector<Entry> sorted() const;
};

/// From text. `origin` (a file's name, say) begins messages. kParse, naming the place, for what is
/// no JSON or no such table: "table.json: \"64\".BLOCK_SIZE_M: expected a positive integer, found
/// -16". Parameters that neither engine knows are kept where they are numbers, words or switches.
Result<TritonTable> parse_triton_table(std::string_view text, const std::string& origin);

/// From a file of at most 1 MiB (those that ship with the engines have some 10 KiB); errors of
/// read_file() and parse_triton_table().
Result<TritonTable> read_triton_table(const std::string& path);

/// Whether this text looks like such a table, right or wrong: an object with a member that holds
/// BLOCK_SIZE_M. Any bytes.
bool looks_like_triton_table(std::string_view text);

/// The file's text, entries in the order of the table. kInvalidArgument, naming the parameter,
/// where the engine's kernel does not have one, lacks one that it needs, or has it of another kind:
/// the engine would end there.
Result<std::string> print_triton_table(const TritonTable& table, Engine engine);

}  // namespace moetune::exchange

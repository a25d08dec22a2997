// What a serving engine's log says of its tuning files: which it found, and where it fell back to a
// default. Reads the wordings of vLLM 0.6 to 0.33 and SGLang 0.4 to 0.5 (docs/exchange.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/engine.h"
#include "exchange/table_name.h"
#include "moetune/result.h"

namespace moetune::exchange {

/// One file that an engine looked for, however many of its processes said so.
struct LogFinding {
  enum class Outcome : uint8_t {
    kFound,
    kOtherTriton,  ///< SGLang: took the file for another version of Triton.
    kFirstGemm,    ///< SGLang: no file for the second GEMM alone; the first one's serves both.
    kDefault,      ///< The engine's default runs.
  };
  Engine engine = Engine::kVllm;
  Outcome outcome = Outcome::kDefault;
  TableName name;
  std::vector<std::string> looked_for;  ///< Paths where nothing was.
  std::string used;                     ///< Path of the file that was taken; empty: none.
  int64_t lines = 0;                    ///< How many said it.
};
const char* to_string(LogFinding::Outcome outcome);

/// Collects findings line by line, in bounded memory: at most 1024 different ones. Not thread-safe.
class EngineLog {
 public:
  /// One line without its end; of more than 16 KiB only the beginning is looked at.
  void add_line(std::string_view line);
  /// In the order in which they were first seen.
  const std::vector<LogFinding>& findings() const { return findings_; }
  int64_t lines() const { return lines_; }
  /// Lines that told of something different from the findings that there was room for.
  int64_t dropped() const { return dropped_; }

 private:
  void add(LogFinding finding);

  std::vector<LogFinding> findings_;
  int64_t lines_ = 0;
  int64_t dropped_ = 0;
};

/// A whole file, or what a pipe gives, of any size. kNotFound and kIo with the system's words,
/// kInvalidArgument for a folder.
Result<EngineLog> read_engine_log(const std::string& path);

}  // namespace moetune::exchange

// What is going on, on stderr: one line that is rewritten on a terminal, a line at least every two
// seconds elsewhere.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace moetune::cli {

struct ProgressState {
  std::string text;   ///< "racing 12 candidates at 64 tokens"; empty: nothing to say.
  double done = 0;    ///< Share of all work, in [0, 1]; negative: unknown.
  double eta_s = -1;  ///< Seconds to the end; negative: unknown.
};

/// Shows the latest state in a thread of its own, so that a long step does not look like a hang.
/// Silent where the step ends before there is anything to say. Thread-safe.
class Progress {
 public:
  Progress();
  /// Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(ProgressState state);

 private:
  void loop();
  std::string line(const ProgressState& state) const;

  const bool terminal_;
  const std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  ProgressState state_;
  bool finished_ = false;
  std::thread thread_;
};

/// "4 s", "2 min 05 s", "1 h 02 min".
std::string duration_text(double seconds);

}  // namespace moetune::cli

#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace moetune::cli {
namespace {

// Often enough to look alive, seldom enough not to take time from what is being measured.
constexpr std::chrono::milliseconds kTerminalPeriod{250};
constexpr std::chrono::milliseconds kPlainPeriod{1900};

void write_error(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

Progress::Progress()
    : terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      thread_([this] { loop(); }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_one();
  thread_.join();
  if (terminal_) write_error("\r\x1b[K");
}

void Progress::show(ProgressState state) {
  const std::lock_guard lock(mutex_);
  // A forecast that grows takes nothing back of what was done.
  if (state.done >= 0) state.done = std::max(state.done, state_.done);
  state_ = std::move(state);
}

std::string Progress::line(const ProgressState& state) const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  std::string line = fmt::format("{:>5.1f} s  ", elapsed.count());
  if (state.done >= 0) line += fmt::format("{:>3.0f} %  ", 100 * state.done);
  line += state.text;
  if (state.eta_s >= 0) line += fmt::format(", about {} left", duration_text(state.eta_s));
  return line;
}

void Progress::loop() {
  std::unique_lock lock(mutex_);
  while (!finished_) {
    changed_.wait_for(lock, terminal_ ? kTerminalPeriod : kPlainPeriod,
                      [this] { return finished_; });
    if (finished_ || state_.text.empty()) continue;
    const std::string text = line(state_);
    write_error(terminal_ ? fmt::format("\r{}\x1b[K", text) : text + '\n');
  }
}

}  // namespace moetune::cli

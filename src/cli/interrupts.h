// Ctrl-C and SIGTERM as a stop token: the work at hand ends early and keeps what it has.
#pragma once

#include <memory>
#include <stop_token>

namespace moetune::cli {

/// While it lives, the first signal requests a stop (and says so on stderr); the second ends the
/// process at once with code 130. One at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  std::stop_token token() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moetune::cli

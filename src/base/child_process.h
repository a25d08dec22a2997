// Helper processes of this program: finding, starting, watching and ending one.
//
// A helper is a program of moetune's own that speaks with its parent over a socket. It gets that
// socket as descriptor 3 and no other descriptor of the parent, and a process group of its own: a
// terminal's Ctrl-C does not reach it, and what it leaves behind can be ended with it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "moetune/result.h"

namespace moetune {

/// The helper's end of the socket, in the helper.
inline constexpr int kHelperSocket = 3;

/// Folders in which helper programs are looked for: that of the running program, ../libexec/moetune
/// from there, and what stands in the same relation to the library that moetune is in, where that
/// is no part of the program (libmoetune.so, in lib or up to four folders deeper).
std::vector<std::string> helper_places(const std::string& program, const std::string& module);
/// The command of a helper program: the first that can be run. Empty where there is none.
std::vector<std::string> find_helper_program(const std::string& name);
/// The folder ../share/moetune/NAME from the running program, or from the library that moetune is
/// in, as of helper_places(). Empty where there is none.
std::string find_data_folder(const std::string& name);

/// The two ends of a new socket pair, closed on exec. kIo where the system has none left.
Result<std::pair<Descriptor, Descriptor>> make_socket_pair();

/// One running helper. Not thread-safe.
class ChildProcess {
 public:
  /// Starts `command` (a path, then arguments) with `socket` as descriptor 3 and `output` as
  /// standard output and error (-1: /dev/null). kNotFound, naming the path and with the system's
  /// reason, where it cannot be started.
  static Result<ChildProcess> start(const std::vector<std::string>& command, int socket,
                                    int output = -1);
  /// None: has no pid, and nothing to be ended.
  ChildProcess() = default;

  ChildProcess(ChildProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), watch_(std::move(other.watch_)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(watch_, other.watch_);
    return *this;
  }
  /// Ends it.
  ~ChildProcess() { end(); }

  /// -1 where it has been ended.
  pid_t pid() const { return pid_; }
  /// Readable (poll) when the process has ended; -1 where the system cannot tell (before Linux
  /// 5.3).
  int watch() const { return watch_.get(); }

  struct End {
    bool by_itself = false;  ///< It was not killed here.
    int signal = 0;          ///< That it died of; 0: none, or somebody else waited for it.
    /// "died of signal 11 (Segmentation fault)", "ended with status 3"
    std::string text;
  };
  /// Gives the process `patience` to end by itself, then kills it; kills what else is in its group;
  /// leaves no zombie.
  End end(std::chrono::milliseconds patience = {});

 private:
  ChildProcess(pid_t pid, Descriptor watch) : pid_(pid), watch_(std::move(watch)) {}

  pid_t pid_ = -1;
  Descriptor watch_;
};

}  // namespace moetune

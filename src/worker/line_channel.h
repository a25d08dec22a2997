// JSON objects, one a line, over a stream socket, and files (descriptors) that travel with them.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/json.h"
#include "moetune/result.h"

namespace moetune::worker {

/// What one end said, with the files that came along.
struct Line {
  Json fields;
  std::vector<Descriptor> files;
};

/// One end of a conversation. Thread-compatible. The other end is not trusted: lines and numbers of
/// files are bounded, and what is no JSON object is an error.
class LineChannel {
 public:
  /// Longest line that is read.
  static constexpr size_t kMaxLine = size_t{16} << 20;
  /// Most files with one line; what else comes is closed.
  static constexpr size_t kMaxFiles = 64;

  /// Sending a line gives up after `patience`, however the other end reads meanwhile.
  explicit LineChannel(Descriptor socket,
                       std::chrono::milliseconds patience = std::chrono::seconds(10));

  int socket() const { return socket_.get(); }

  /// Sends one line and its files, whose number it adds as "files". kIo where the other end is
  /// gone; kDeadline where it does not read. A part of the line may have been sent then: every
  /// later one fails in the same way.
  Status send(Json fields, std::span<const Descriptor> files = {});

  /// Takes in what has arrived, without waiting. False: the other end has closed.
  Result<bool> receive();
  /// The next whole line, if there is one. kParse for one that is no JSON object, too long, or came
  /// without the files that it announces.
  Result<std::optional<Line>> next();

 private:
  Status send_text(std::string_view line, std::span<const int> files);
  void keep_files(msghdr& header);
  Result<Line> parse(std::string_view text);

  Descriptor socket_;
  std::chrono::milliseconds patience_;
  Status broken_;  // By a line that was not sent to its end.
  std::string received_;
  size_t begin_ = 0;     // What is before this was read. Taken off seldom, for it moves the rest.
  size_t searched_ = 0;  // No newline between that and this.
  std::deque<Descriptor> files_;
};

/// A file in memory that holds these bytes, one piece after the other. kIo.
Result<Descriptor> make_memory_file(std::span<const std::span<const std::byte>> pieces);

/// The pieces of such a file, of these lengths, copied out, so that its maker cannot change them
/// any more. kParse where the file has another length; kOutOfMemory where it cannot be held; kIo.
Result<std::vector<std::vector<std::byte>>> read_memory_file(const Descriptor& file,
                                                             std::span<const size_t> lengths);

}  // namespace moetune::worker

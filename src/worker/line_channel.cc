#include "worker/line_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/host.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace moetune::worker {
namespace {

using Clock = std::chrono::steady_clock;

Error io_error(const char* action, int error) {
  return {ErrorCode::kIo, fmt::format("cannot {}: {}", action, error_text(error))};
}

// Room for the descriptors of one message, aligned as the kernel wants it.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(LineChannel::kMaxFiles * sizeof(int))];
};

void attach(msghdr& header, Control& control, std::span<const int> files) {
  std::memset(&control, 0, sizeof control);
  header.msg_control = control.bytes;
  header.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(part), files.data(), files.size_bytes());
}

}  // namespace

LineChannel::LineChannel(Descriptor socket, std::chrono::milliseconds patience)
    : socket_(std::move(socket)), patience_(patience) {}

Status LineChannel::send(Json fields, std::span<const Descriptor> files) {
  if (files.size() > kMaxFiles) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} files with one message; at most {}", files.size(), kMaxFiles)};
  }
  std::vector<int> numbers;
  for (const Descriptor& file : files) numbers.push_back(file.get());
  if (!files.empty()) fields["files"] = files.size();
  if (broken_.ok()) broken_ = send_text(print_json_line(fields) + '\n', numbers);
  return broken_;
}

Status LineChannel::send_text(std::string_view line, std::span<const int> files) {
  const auto deadline = Clock::now() + patience_;
  for (size_t sent = 0; sent < line.size();) {
    iovec data = {const_cast<char*>(line.data()) + sent, line.size() - sent};
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    Control control;
    if (sent == 0 && !files.empty()) attach(header, control, files);
    const ssize_t count = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) sent += static_cast<size_t>(count);
    if (count >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      return io_error("write to the other process", errno);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return Error{ErrorCode::kDeadline,
                   fmt::format("the other process does not read what was sent to it {} ms ago",
                               patience_.count())};
    }
    pollfd room{socket_.get(), POLLOUT, 0};
    ::poll(&room, 1, static_cast<int>(left.count()));
  }
  return {};
}

Result<bool> LineChannel::receive() {
  std::array<char, 65536> buffer;
  while (true) {
    iovec data = {buffer.data(), buffer.size()};
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    Control control;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    const ssize_t got = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return false;
    if (got < 0) return io_error("read from the other process", errno);
    keep_files(header);
    received_.append(buffer.data(), static_cast<size_t>(got));
    // A line that never ends is found out by next().
    if (received_.size() - begin_ > 2 * kMaxLine) return true;
  }
}

void LineChannel::keep_files(msghdr& header) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof number);
      Descriptor file(number);
      if (files_.size() < kMaxFiles) files_.push_back(std::move(file));
    }
  }
}

Result<std::optional<Line>> LineChannel::next() {
  const size_t end = received_.find('\n', searched_);
  const size_t length = std::min(end, received_.size()) - begin_;
  if (length > kMaxLine) return Error{ErrorCode::kParse, "a message without an end"};
  if (end == std::string::npos) {
    searched_ = received_.size();
    return std::optional<Line>();
  }
  MOETUNE_ASSIGN_OR_RETURN(Line line, parse(std::string_view(received_).substr(begin_, length)));
  begin_ = end + 1;
  if (begin_ > received_.size() / 2) {
    received_.erase(0, begin_);
    begin_ = 0;
  }
  searched_ = begin_;
  return std::optional<Line>(std::move(line));
}

Result<Line> LineChannel::parse(std::string_view text) {
  Line line;
  MOETUNE_ASSIGN_OR_RETURN(line.fields,
                           parse_json(text, "a message", {.max_bytes = kMaxLine, .max_depth = 16}));
  int files = 0;
  JsonReader reader(line.fields, "a message");
  reader.optional("files", files);
  if (!reader.ok()) return reader.error();
  if (files < 0 || static_cast<size_t>(files) > files_.size()) {
    return Error{ErrorCode::kParse,
                 fmt::format("a message announces {} files, {} came", files, files_.size())};
  }
  for (; files > 0; --files, files_.pop_front()) line.files.push_back(std::move(files_.front()));
  return line;
}

Result<Descriptor> make_memory_file(std::span<const std::span<const std::byte>> pieces) {
  Descriptor file(::memfd_create("moetune", MFD_CLOEXEC));
  if (!file.ok()) return io_error("make a file in memory", errno);
  for (std::span<const std::byte> left : pieces) {
    while (!left.empty()) {
      const ssize_t written = ::write(file.get(), left.data(), left.size());
      if (written < 0 && errno != EINTR) return io_error("write a file in memory", errno);
      if (written > 0) left = left.subspan(static_cast<size_t>(written));
    }
  }
  return file;
}

namespace {

// Its maker need not have had the memory: a file may have holes.
bool has_room_for(size_t bytes) {
  constexpr size_t kNotWorthAsking = size_t{256} << 20;
  if (bytes <= kNotWorthAsking) return true;
  const size_t available = host_available_memory_bytes();
  return available == 0 || bytes <= available;
}

}  // namespace

Result<std::vector<std::vector<std::byte>>> read_memory_file(const Descriptor& file,
                                                             std::span<const size_t> lengths) {
  const size_t bytes = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return io_error("read a file in memory", errno);
  if (!S_ISREG(status.st_mode) || static_cast<uint64_t>(status.st_size) != bytes) {
    return Error{ErrorCode::kParse,
                 fmt::format("a file of {} bytes came, not of {}", status.st_size, bytes)};
  }
  if (!has_room_for(bytes)) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("a file of {} bytes came, more than there is memory", bytes)};
  }
  std::vector<std::vector<std::byte>> pieces;
  off_t offset = 0;
  for (const size_t length : lengths) {
    std::vector<std::byte>& piece = pieces.emplace_back(length);
    for (size_t done = 0; done < length;) {
      const ssize_t got = ::pread(file.get(), piece.data() + done, length - done, offset);
      if (got < 0 && errno != EINTR) return io_error("read a file in memory", errno);
      if (got == 0) return Error{ErrorCode::kParse, "a file became shorter while it was read"};
      if (got > 0) done += static_cast<size_t>(got);
      if (got > 0) offset += got;
    }
  }
  return pieces;
}

}  // namespace moetune::worker

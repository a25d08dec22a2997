// The other end of a conversation of the worker protocol: says what the input holds, and listens
// to nothing.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "base/child_process.h"
#include "fuzz/fuzz_target.h"
#include "worker/line_channel.h"

namespace moetune::fuzz {

/// Takes two characters off the input, the number of files that come with its first byte ('0' to
/// '3') and the size of each in steps of 64 bytes ('0': none), and sends the rest and
/// `ending`. Returns both ends; the second one is the peer's.
inline std::pair<Descriptor, Descriptor> said(std::string_view input,
                                              std::string_view ending = "") {
  auto ends = make_socket_pair();
  require(ends.ok(), "there is a socket");
  const size_t count = take_byte(input) & 3;
  const std::vector<std::byte> content(static_cast<size_t>(take_byte(input) & 15) * 64);
  const std::span<const std::byte> piece = content;
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
  std::vector<Descriptor> files;
  std::string text = std::string(input).append(ending);
  iovec data = {text.data(), text.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; ++i) {
      files.push_back(std::move(worker::make_memory_file({&piece, 1}).value()));
      const int number = files.back().get();
      std::copy_n(reinterpret_cast<const char*>(&number), sizeof number,
                  reinterpret_cast<char*>(CMSG_DATA(part)) + i * sizeof number);
    }
  }
  (void)::sendmsg(ends->second.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return std::move(ends).value();
}

}  // namespace moetune::fuzz

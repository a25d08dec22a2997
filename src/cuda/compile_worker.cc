#include "cuda/compile_worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "cuda/shared_library.h"

namespace moetune::cuda {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// No job or outcome comes near this: a length above it is not one of ours.
constexpr uint64_t kLargestMessage = uint64_t{1} << 30;

Error io_error(const char* action, int error) {
  return {ErrorCode::kIo,
          fmt::format("cannot {} a compiler process: {}", action, error_text(error))};
}

// Milliseconds for poll(): -1 waits for ever.
int milliseconds_until(std::optional<Clock::time_point> until) {
  if (!until) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

// Reads exactly `size` bytes; false where the other end closed before.
Result<bool> receive_bytes(int socket, void* data, size_t size,
                           std::optional<Clock::time_point> until) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    pollfd ready{socket, POLLIN, 0};
    const int polled = ::poll(&ready, 1, milliseconds_until(until));
    if (polled == 0) return Error{ErrorCode::kDeadline, "the compiler did not answer in time"};
    if (polled < 0 && errno != EINTR) return io_error("wait for", errno);
    if (polled < 0) continue;
    const ssize_t got = ::recv(socket, at, size, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return false;
    if (got < 0 && errno != EINTR) return io_error("read from", errno);
    if (got > 0) {
      at += got;
      size -= static_cast<size_t>(got);
    }
  }
  return true;
}

template <typename T, typename Read>
Result<T> decode(const std::vector<uint8_t>& message, Read read) {
  const json value = json::from_msgpack(message, true, false);
  try {
    if (value.is_object()) return read(value);
  } catch (const json::exception&) {
    // Falls through to the one error for every kind of malformed message.
  }
  return Error{ErrorCode::kParse, "a compiler process sent something that is no message"};
}

// NVRTC tells precompiled headers apart by name, options and time, but these headers are in memory
// and have no time: each set of texts gets a folder of its own.
void use_precompiled_header(CompileJob& job, const std::string& scratch_folder) {
  Hash64 texts;
  for (const NamedText& header : job.headers) texts.add(header.name).add(header.text);
  const std::string folder = fmt::format("{}/{:016x}", scratch_folder, texts.value());
  if (!make_private_folders(folder).ok()) return;
  job.options.insert(job.options.end(), {"--pch", "--pch-dir=" + folder, "--pch-messages=false"});
}

// Ends this process, in the middle of a compilation too, when the one that asked for it is gone.
void watch_other_end(int socket, std::string scratch_folder) {
  std::thread([socket, folder = std::move(scratch_folder)] {
    pollfd hangup{socket, POLLRDHUP, 0};
    while (::poll(&hangup, 1, -1) < 0 && errno == EINTR) {
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    ::_exit(0);
  }).detach();
}

}  // namespace

std::vector<uint8_t> encode(const CompileJob& job) {
  json headers = json::array();
  for (const NamedText& header : job.headers) headers.push_back({header.name, header.text});
  return json::to_msgpack({{"source", job.source},
                           {"headers", headers},
                           {"kernels", job.kernels},
                           {"options", job.options},
                           {"precompiled_header", job.precompiled_header}});
}

std::vector<uint8_t> encode(const CompileOutcome& outcome) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(outcome.cubin.data());
  // A compiler's log may quote bytes that are no UTF-8, which is fine in MessagePack and between
  // our own two ends.
  return json::to_msgpack({{"ok", outcome.ok},
                           {"log", outcome.log},
                           {"symbols", outcome.symbols},
                           {"cubin", json::binary({bytes, bytes + outcome.cubin.size()})},
                           {"seconds", outcome.seconds}});
}

Result<CompileJob> decode_job(const std::vector<uint8_t>& message) {
  return decode<CompileJob>(message, [](const json& value) {
    CompileJob job;
    job.source = value.at("source").get<std::string>();
    for (const json& header : value.at("headers")) {
      job.headers.push_back({header.at(0).get<std::string>(), header.at(1).get<std::string>()});
    }
    job.kernels = value.at("kernels").get<std::vector<std::string>>();
    job.options = value.at("options").get<std::vector<std::string>>();
    job.precompiled_header = value.at("precompiled_header").get<bool>();
    return job;
  });
}

Result<CompileOutcome> decode_outcome(const std::vector<uint8_t>& message) {
  return decode<CompileOutcome>(message, [](const json& value) {
    CompileOutcome outcome;
    outcome.ok = value.at("ok").get<bool>();
    outcome.log = value.at("log").get<std::string>();
    outcome.symbols = value.at("symbols").get<std::vector<std::string>>();
    const auto& cubin = value.at("cubin").get_binary();
    outcome.cubin.resize(cubin.size());
    if (!cubin.empty()) std::memcpy(outcome.cubin.data(), cubin.data(), cubin.size());
    outcome.seconds = value.at("seconds").get<double>();
    return outcome;
  });
}

Status send_message(int socket, const std::vector<uint8_t>& message) {
  const uint64_t size = message.size();
  std::vector<uint8_t> framed(sizeof size);
  std::memcpy(framed.data(), &size, sizeof size);
  framed.insert(framed.end(), message.begin(), message.end());
  for (size_t sent = 0; sent < framed.size();) {
    const ssize_t count = ::send(socket, framed.data() + sent, framed.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) return io_error("write to", errno);
    if (count > 0) sent += static_cast<size_t>(count);
  }
  return {};
}

Result<std::optional<std::vector<uint8_t>>> receive_message(
    int socket, std::optional<Clock::time_point> until) {
  using Message = std::optional<std::vector<uint8_t>>;
  uint64_t size = 0;
  MOETUNE_ASSIGN_OR_RETURN(const bool has_size, receive_bytes(socket, &size, sizeof size, until));
  if (!has_size) return Message();
  if (size > kLargestMessage)
    return Error{ErrorCode::kParse, "a compiler process sent something that is no message"};
  std::vector<uint8_t> message(size);
  MOETUNE_ASSIGN_OR_RETURN(const bool whole, receive_bytes(socket, message.data(), size, until));
  if (!whole) return Message();
  return Message(std::move(message));
}

int serve_compile_jobs(int socket, const char* library, const char* scratch_folder) {
  watch_other_end(socket, scratch_folder);
  const auto opened = SharedLibrary::open(library);
  const auto nvrtc = opened.ok() ? bind_nvrtc(*opened) : Result<Nvrtc>(opened.error());
  while (true) {
    const auto message = receive_message(socket);
    if (!message.ok() || !message->has_value()) break;
    CompileOutcome outcome;
    if (auto job = decode_job(**message); !job.ok()) {
      outcome.log = job.error().message;
    } else if (!nvrtc.ok()) {
      outcome.log = nvrtc.error().message;
    } else {
      if (job->precompiled_header) use_precompiled_header(*job, scratch_folder);
      outcome = run_compiler(*nvrtc, *job);
    }
    if (!send_message(socket, encode(outcome)).ok()) break;
  }
  std::error_code ignored;
  std::filesystem::remove_all(scratch_folder, ignored);
  return 0;
}

}  // namespace moetune::cuda

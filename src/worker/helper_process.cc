#include "worker/helper_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/host.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "worker/messages.h"

namespace moetune::worker {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

constexpr milliseconds kDying{500};  // A process that has closed its socket has this long to end.
constexpr size_t kQuoted = 160;      // Characters of its output in a message.
constexpr size_t kOutputAtOnce = 1 << 20;

// For poll(), rounded up.
int milliseconds_until(std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

uint64_t memory_limit(const WorkerPolicy& policy) {
  if (policy.memory_bytes > 0) return policy.memory_bytes;
  const uint64_t available = host_available_memory_bytes();
  return available - available / 16;
}

std::vector<std::string> command_of(const WorkerOptions& options) {
  std::vector<std::string> command = options.command;
  command.insert(command.end(), {"--parent", fmt::format("{}", ::getpid())});
  if (const uint64_t bytes = memory_limit(options.policy); bytes > 0)
    command.insert(command.end(), {"--memory-bytes", fmt::format("{}", bytes)});
  return command;
}

Result<std::pair<Descriptor, Descriptor>> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot make a pipe: {}", error_text(errno))};
  }
  // The helper's end is an ordinary one.
  ::fcntl(ends[1], F_SETFL, 0);
  return std::pair(Descriptor(ends[0]), Descriptor(ends[1]));
}

std::string with_quote(std::string text, const OutputTail& output) {
  const std::string quote = output.quote(kQuoted);
  if (!quote.empty()) text += fmt::format("; it printed: {}", quote);
  return text;
}

constexpr const char* kOneBuild =
    "install the helper and the program that uses moetune from one build";

std::string name_of(const WorkerOptions& options) {
  return options.foreign_name.empty() ? options.command[0] : "the host " + options.foreign_name;
}

// Why that program cannot be a helper.
Error refusal(const WorkerOptions& options, const std::string& why) {
  if (options.foreign_name.empty())
    return {ErrorCode::kUnsupported, name_of(options) + why, kOneBuild};
  return {ErrorCode::kUnsupported, name_of(options) + why,
          fmt::format("started as: {}", fmt::join(options.command, " "))};
}

Status check_hello(const WorkerOptions& options, const Json& fields) {
  std::string name, its_version;
  int protocol = 0;
  JsonReader reader(fields, "hello");
  reader.required("hello", name);
  reader.optional("protocol", protocol);
  reader.optional("version", its_version);
  if (!reader.ok()) return refusal(options, " is no helper of moetune: " + reader.error().message);
  const bool is_foreign = !options.foreign_name.empty();
  if (protocol == kProtocol && (is_foreign || its_version == version())) return {};
  const std::string needed = is_foreign ? fmt::format("protocol {}", kProtocol)
                                        : fmt::format("{} with protocol {}", version(), kProtocol);
  return refusal(options, fmt::format(" is {} {} with protocol {}; {} is needed", name, its_version,
                                      protocol, needed));
}

}  // namespace

// One request on its way.
struct HelperProcess::Conversation {
  const Limits& limits;
  Clock::time_point phase_start = Clock::now();
  Clock::time_point stop_at = Clock::time_point::max();
  bool is_compiling = false;
  double run_seconds = 0;
  double compile_seconds = 0;

  const char* doing() const { return is_compiling ? "compiling" : limits.doing; }
  double limit_s() const { return is_compiling ? limits.compile_s : limits.run_s; }
  // Of all its phases of a kind together: who says again and again what it does gains nothing.
  Clock::time_point deadline() const {
    const double left_s = limit_s() - (is_compiling ? compile_seconds : run_seconds);
    const auto end = phase_start + std::chrono::ceil<Clock::duration>(duration<double>(left_s));
    return std::min(end, stop_at);
  }
  void enter(bool compiling) {
    const auto now = Clock::now();
    (is_compiling ? compile_seconds : run_seconds) += duration<double>(now - phase_start).count();
    phase_start = now;
    is_compiling = compiling;
  }
};

HelperProcess::HelperProcess(ChildProcess process, Descriptor socket, Descriptor output,
                             const WorkerPolicy& policy)
    : process_(std::move(process)),
      channel_(std::move(socket),
               std::chrono::ceil<std::chrono::milliseconds>(duration<double>(policy.read_s))),
      output_end_(std::move(output)),
      output_(policy.output_bytes) {}

Result<std::unique_ptr<HelperProcess>> HelperProcess::start(const WorkerOptions& options) {
  MOETUNE_ASSIGN_OR_RETURN(auto ends, make_socket_pair());
  MOETUNE_ASSIGN_OR_RETURN(auto pipe, make_pipe());
  MOETUNE_ASSIGN_OR_RETURN(
      ChildProcess process,
      ChildProcess::start(command_of(options), ends.second.get(), pipe.second.get()));
  std::unique_ptr<HelperProcess> helper(new HelperProcess(std::move(process), std::move(ends.first),
                                                          std::move(pipe.first), options.policy));
  ends.second.reset();
  pipe.second.reset();
  MOETUNE_RETURN_IF_ERROR(helper->hear_hello(options));
  return helper;
}

Result<std::unique_ptr<HelperProcess>> HelperProcess::attach(Descriptor socket,
                                                             const WorkerOptions& options) {
  std::unique_ptr<HelperProcess> helper(
      new HelperProcess(ChildProcess(), std::move(socket), Descriptor(), options.policy));
  MOETUNE_RETURN_IF_ERROR(helper->hear_hello(options));
  return helper;
}

Status HelperProcess::hear_hello(const WorkerOptions& options) {
  const Limits limits{.run_s = options.policy.start_s, .doing = "starting"};
  const Conversation conversation{limits};
  for (Event event = Event::kNews; true; event = wait(conversation.deadline(), -1)) {
    const auto line = channel_.next();
    if (!line.ok()) return refusal(options, " is no helper of moetune: " + line.error().message);
    if (line->has_value()) return check_hello(options, (*line)->fields);
    if (event == Event::kNews) continue;
    const Reply reply = event == Event::kTime ? overdue(conversation) : gone(conversation);
    return refusal(options, ": " + reply.error.message);
  }
}

std::optional<std::string> HelperProcess::found_dead() {
  pollfd ended{process_.watch(), POLLIN, 0};
  pollfd hung_up{channel_.socket(), POLLRDHUP, 0};
  if (::poll(&ended, 1, 0) <= 0 && ::poll(&hung_up, 1, 0) <= 0) return std::nullopt;
  const std::string how = process_.end(kDying).text;
  read_output();
  return with_quote(fmt::format("{} while nothing was asked of it", how), output_);
}

Reply HelperProcess::ask(Json request, std::span<const Descriptor> files, const Limits& limits) {
  read_output();
  output_.clear();
  request["id"] = ++last_id_;
  Conversation conversation{limits};
  if (const Status sent = channel_.send(std::move(request), files); !sent.ok()) {
    if (sent.error().code != ErrorCode::kDeadline) return gone(conversation);
    process_.end();
    return dead(conversation, ErrorCode::kDeadline, "did not read its request and was ended");
  }
  while (true) {
    if (std::optional<Reply> reply = hear(conversation)) return std::move(*reply);
    const bool is_stopping = conversation.stop_at != Clock::time_point::max();
    switch (wait(conversation.deadline(), is_stopping ? -1 : limits.stop)) {
      case Event::kNews:
        // Who never stops talking is late all the same.
        if (Clock::now() < conversation.deadline()) break;
        if (std::optional<Reply> reply = hear(conversation)) return std::move(*reply);
        return overdue(conversation);
      case Event::kTime: return overdue(conversation);
      case Event::kStop:
        conversation.stop_at = Clock::now() + std::chrono::ceil<Clock::duration>(
                                                  duration<double>(limits.stop_grace_s));
        break;
      case Event::kGone:
        if (std::optional<Reply> reply = hear(conversation)) return std::move(*reply);
        return gone(conversation);
    }
  }
}

HelperProcess::Event HelperProcess::wait(Clock::time_point until, int stop) {
  std::array<pollfd, 4> watched = {pollfd{channel_.socket(), POLLIN, 0},
                                   pollfd{output_end_.get(), POLLIN, 0},
                                   pollfd{process_.watch(), POLLIN, 0}, pollfd{stop, POLLIN, 0}};
  const int count = ::poll(watched.data(), watched.size(), milliseconds_until(until));
  if (count < 0 && errno != EINTR) return Event::kGone;
  if (watched[1].revents != 0) read_output();
  if (watched[3].revents != 0) return Event::kStop;
  if (watched[0].revents != 0 || watched[2].revents != 0) {
    const auto is_open = channel_.receive();
    if (!is_open.ok() || !*is_open || watched[2].revents != 0) return Event::kGone;
    return Event::kNews;
  }
  return Clock::now() >= until ? Event::kTime : Event::kNews;
}

void HelperProcess::read_output() {
  std::array<char, 65536> buffer;
  for (size_t total = 0; output_end_.ok() && total < kOutputAtOnce;) {
    const ssize_t got = ::read(output_end_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return output_end_.reset();  // Nobody can write to it any more.
    output_.add({buffer.data(), static_cast<size_t>(got)});
    total += static_cast<size_t>(got);
  }
}

std::optional<Reply> HelperProcess::hear(Conversation& conversation) {
  while (true) {
    auto line = channel_.next();
    if (line.ok() && !line->has_value()) return std::nullopt;
    int64_t id = 0;
    std::string phase;
    if (line.ok()) {
      JsonReader reader((*line)->fields, "an answer");
      reader.required("id", id);
      reader.optional("at", phase);
      if (!reader.ok()) line = reader.error();
    }
    if (!line.ok() || id != last_id_) {
      process_.end();
      return dead(conversation, ErrorCode::kRun,
                  line.ok() ? "answered something that it was not asked"
                            : "sent something that is no answer: " + line.error().message);
    }
    if (!phase.empty()) {
      conversation.enter(phase == "compile");
      continue;
    }
    return answer(conversation, std::move(**line));
  }
}

Reply HelperProcess::answer(Conversation& conversation, Line line) {
  conversation.enter(false);
  Reply reply{.answer = std::move(line),
              .run_seconds = conversation.run_seconds,
              .compile_seconds = conversation.compile_seconds};
  bool is_lost = false;
  JsonReader reader(reply.answer.fields, "an answer");
  reader.optional_object("error", [&](JsonReader& fields) {
    reply.kind = Reply::Kind::kError;
    reply.error = read_error(fields);
  });
  reader.optional("lost", is_lost);
  if (!reader.ok()) {
    reply.kind = Reply::Kind::kError;
    reply.error = reader.error();
  }
  if (is_lost) {
    process_.end();
    reply.kind = Reply::Kind::kDied;
  }
  return reply;
}

Reply HelperProcess::overdue(const Conversation& conversation) {
  process_.end();
  if (conversation.stop_at != Clock::time_point::max()) {
    Reply reply = dead(conversation, ErrorCode::kInterrupted, "was ended as a stop was requested");
    reply.kind = Reply::Kind::kStopped;
    return reply;
  }
  return dead(conversation, ErrorCode::kDeadline,
              fmt::format("took longer than {:.3g} s and was ended", conversation.limit_s()));
}

Reply HelperProcess::gone(const Conversation& conversation) {
  const ChildProcess::End end = process_.end(kDying);
  const ErrorCode code = conversation.is_compiling ? ErrorCode::kCompile : ErrorCode::kRun;
  if (!end.by_itself) return dead(conversation, code, "closed its connection");
  if (end.signal != SIGKILL) return dead(conversation, code, end.text);
  // Nobody here has sent that signal: the system does where memory runs out.
  Reply reply = dead(conversation, ErrorCode::kOutOfMemory, end.text);
  reply.error.hint = "the system may have run out of memory";
  return reply;
}

Reply HelperProcess::dead(const Conversation& conversation, ErrorCode code, std::string how) {
  read_output();
  return {.kind = Reply::Kind::kDied,
          .error = {code, with_quote(fmt::format("the helper process {} while {}", how,
                                                 conversation.doing()),
                                     output_)}};
}

}  // namespace moetune::worker

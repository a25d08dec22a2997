// Requests with random damage: each is answered, by an error if need be, or ends the conversation;
// none ends the helper in any other way.
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/random.h"
#include "fault/operator/faulty_operator.h"
#include "worker/server.h"

namespace moetune::worker {
namespace {

class DoublingPlace final : public Place {
 public:
  Device& device() override { return *device_; }
  Workbench& bench() override { return *bench_; }
  std::vector<TunableRunner*> runners() override { return {runner_.get()}; }

 private:
  std::unique_ptr<testing::FaultyDevice> device_ = testing::make_faulty_device();
  std::unique_ptr<Workbench> bench_ = testing::make_doubling_bench();
  std::unique_ptr<TunableRunner> runner_ = testing::make_faulty_runner(device_.get());
};

const char* const kRequests[] = {
    R"({"do":"open","id":1,"session":1,"problem":{"op":"faulty","attributes":{"columns":"16"}},"options":{"a":"b"}})",
    R"({"do":"load","id":2,"session":1,"scale":"full","layouts":[{"runner":"faulty.kinds","layout":"plain"}]})",
    R"({"do":"select","id":3,"session":1,"case":{"tokens":3,"workload":"uniform","seed":"5"},"samples":2})",
    R"({"do":"check","id":4,"session":1,"candidate":{"runner":"faulty.kinds","version":1,"scheme":"single","stages":[{"name":"main","tactic":{"kind":"good"}}]},"sample":0,"rows":[0,2]})",
    R"({"do":"measure","id":5,"session":1,"candidates":[{"runner":"faulty.kinds","version":1,"scheme":"single","stages":[{"name":"main","tactic":{"kind":"good"}}]}],"stage":-1,"calls":2})",
    R"({"do":"prefetch","session":1,"candidates":[]})",
    R"({"do":"unload","id":7,"session":1})",
};

// One or two of: a byte changed, bytes removed, a piece doubled, digits made many.
std::string damaged(std::string text, Random& random) {
  for (uint32_t times = 1 + random.below(2); times > 0; --times) {
    const auto size = static_cast<uint32_t>(text.size());
    const uint32_t at = random.below(size);
    switch (random.below(4)) {
      case 0: text[at] = static_cast<char>(' ' + random.below(95)); break;
      case 1: text.erase(at, 1 + random.below(6)); break;
      case 2: text.insert(at, text.substr(random.below(size), random.below(20))); break;
      default: text.insert(at, std::string(1 + random.below(20), '9')); break;
    }
  }
  return text;
}

// A server on a thread of its own, and the other end of its socket.
class Conversation {
 public:
  explicit Conversation(const Registry& registry) {
    auto ends = make_socket_pair();
    channel_ = std::make_unique<LineChannel>(std::move(ends->first));
    server_ = std::thread([&registry, end = std::move(ends->second)]() mutable {
      LineChannel channel(std::move(end));
      (void)Server(channel, registry).run();
    });
  }
  ~Conversation() {
    channel_.reset();
    server_.join();
  }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  bool send(const std::string& text) {
    return ::send(channel_->socket(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  /// Whether the answer with that id came before the end.
  bool answers(int64_t id) {
    while (true) {
      const auto line = channel_->next();
      if (!line.ok()) ADD_FAILURE() << line.error().message;
      if (line.ok() && line->has_value()) {
        const Json& fields = (*line)->fields;
        if (fields.value("id", int64_t{0}) == id && !fields.contains("at")) return true;
        continue;
      }
      pollfd ready{channel_->socket(), POLLIN, 0};
      if (::poll(&ready, 1, 60000) != 1) return false;
      const auto is_open = channel_->receive();
      if (!is_open.ok() || !*is_open) return false;
    }
  }

 private:
  std::unique_ptr<LineChannel> channel_;
  std::thread server_;
};

TEST(ProtocolMutation, NoRequestEndsTheHelperOtherThanByClosing) {
  Registry registry;
  registry.add(testing::kFaultyOp, [](const auto&, const auto&) -> Result<std::unique_ptr<Place>> {
    return std::unique_ptr<Place>(std::make_unique<DoublingPlace>());
  });
  Random random(11);
  int closed = 0;
  int answered = 0;
  for (int round = 0; round < 1500; ++round) {
    Conversation conversation(registry);
    // Whole up to one request, which is damaged.
    const size_t which = random.below(std::size(kRequests));
    for (size_t i = 0; i < which; ++i) {
      ASSERT_TRUE(conversation.send(std::string(kRequests[i]) + "\n"));
    }
    ASSERT_TRUE(conversation.send(damaged(kRequests[which], random) + "\n"));
    const bool sent = conversation.send("{\"do\":\"unload\",\"id\":99,\"session\":1}\n");
    ++(sent && conversation.answers(99) ? answered : closed);
  }
  EXPECT_GT(closed, 100) << "what is no JSON ends a conversation";
  EXPECT_GT(answered, 100) << "what is JSON has an answer";
}

}  // namespace
}  // namespace moetune::worker

// A conversation with a helper that is played by the test.
#include "worker/helper_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/child_process.h"
#include "base/json.h"
#include "worker/line_channel.h"
#include "worker/messages.h"
#include "worker/worker_host.h"

namespace moetune::worker {
namespace {

class HelperProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = make_socket_pair();
    ASSERT_TRUE(ends.ok());
    played_ = std::make_unique<LineChannel>(std::move(ends->second));
    ASSERT_TRUE(played_->send({{"hello", "mine"}, {"protocol", kProtocol}, {"version", "1"}}).ok());
    WorkerOptions options{.command = {}, .policy = {}, .foreign_name = "mine"};
    options.policy.read_s = 0.1;
    auto helper = HelperProcess::attach(std::move(ends->first), options);
    ASSERT_TRUE(helper.ok()) << helper.error().message;
    helper_ = *std::move(helper);
  }

  const Json large_{{"text", std::string(size_t{8} << 20, 'x')}};
  std::unique_ptr<LineChannel> played_;
  std::unique_ptr<HelperProcess> helper_;
};

TEST_F(HelperProcessTest, OneThatReadsNoRequestIsEnded) {
  const Reply reply = helper_->ask(large_, {}, {.run_s = 60, .doing = "packing weights"});
  EXPECT_EQ(reply.kind, Reply::Kind::kDied);
  EXPECT_EQ(reply.error.code, ErrorCode::kDeadline);
  EXPECT_THAT(reply.error.message,
              ::testing::HasSubstr("did not read its request and was ended while packing weights"));
}

TEST_F(HelperProcessTest, HalfAHintIsFollowedByNoRequest) {
  helper_->tell(large_);
  ASSERT_TRUE(played_->receive().ok());  // There is room again.
  const Reply reply = helper_->ask(Json{{"do", "anything"}}, {}, {.run_s = 60});
  EXPECT_EQ(reply.kind, Reply::Kind::kDied);
  EXPECT_THAT(reply.error.message, ::testing::HasSubstr("did not read its request"))
      << "it was not sent behind half a line";
}

}  // namespace
}  // namespace moetune::worker

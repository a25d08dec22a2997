#include "worker/line_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/child_process.h"

namespace moetune::worker {
namespace {

class LineChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = make_socket_pair();
    ASSERT_TRUE(ends.ok());
    raw_ = Descriptor(::dup(ends->first.get()));
    a_ = std::make_unique<LineChannel>(std::move(ends->first));
    b_ = std::make_unique<LineChannel>(std::move(ends->second));
  }
  /// The next line at the other end, waited for.
  Result<std::optional<Line>> hear() {
    while (true) {
      auto line = b_->next();
      if (!line.ok() || line->has_value()) return line;
      pollfd ready{b_->socket(), POLLIN, 0};
      if (::poll(&ready, 1, 5000) != 1) return std::optional<Line>();
      const auto open = b_->receive();
      if (!open.ok()) return open.error();
      if (!*open) return std::optional<Line>();
    }
  }
  /// In place of a_.
  void make_impatient() {
    a_ = std::make_unique<LineChannel>(std::move(raw_), std::chrono::milliseconds(200));
  }
  void write_raw(std::string_view text) {
    ASSERT_EQ(::write(raw_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  Descriptor raw_;
  std::unique_ptr<LineChannel> a_;
  std::unique_ptr<LineChannel> b_;
};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

TEST_F(LineChannelTest, CarriesObjectsInOrderHoweverTheyAreCut) {
  write_raw("{\"n\": 1}\n{\"n\"");
  EXPECT_EQ(hear()->value().fields["n"], 1);
  EXPECT_FALSE(b_->next()->has_value());
  write_raw(": 2}\n");
  EXPECT_EQ(hear()->value().fields["n"], 2);
}

TEST_F(LineChannelTest, CarriesMoreThanASocketHolds) {
  const Json large{{"text", std::string(size_t{4} << 20, 'x')}};
  std::thread sender([&] { EXPECT_TRUE(a_->send(large).ok()); });
  const auto line = hear();
  sender.join();
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->value().fields, large);
}

TEST_F(LineChannelTest, CarriesManyLinesThatComeAtOnce) {
  std::string text;
  for (int n = 0; n < 5000; ++n) text += "{\"n\":" + std::to_string(n) + "}\n";
  write_raw(text + "{\"n\":");
  for (int n = 0; n < 5000; ++n) ASSERT_EQ(hear()->value().fields["n"], n);
  EXPECT_FALSE(b_->next()->has_value());
  write_raw("-1}\n");
  EXPECT_EQ(hear()->value().fields["n"], -1);
}

TEST_F(LineChannelTest, FilesComeWithTheirLine) {
  const auto one = bytes_of("one");
  const auto two = bytes_of("twotwo");
  std::array<std::span<const std::byte>, 2> pieces = {one, two};
  std::vector<Descriptor> files;
  files.push_back(std::move(make_memory_file({pieces.data(), 1}).value()));
  files.push_back(std::move(make_memory_file(pieces).value()));
  ASSERT_TRUE(a_->send(Json{{"n", 0}}).ok());
  ASSERT_TRUE(a_->send(Json{{"n", 1}}, files).ok());
  ASSERT_TRUE(a_->send(Json{{"n", 2}}, {files.data(), 1}).ok());
  EXPECT_EQ(hear()->value().files.size(), 0u);
  const auto line = hear();
  ASSERT_EQ(line->value().files.size(), 2u);
  const size_t lengths[] = {3, 6};
  const auto read = read_memory_file(line->value().files[1], lengths);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->at(0), one);
  EXPECT_EQ(read->at(1), two);
  EXPECT_EQ(hear()->value().files.size(), 1u);
}

TEST_F(LineChannelTest, AFileOfAnotherLengthIsRefused) {
  const auto content = bytes_of("1234");
  const std::span<const std::byte> piece = content;
  const auto file = make_memory_file({&piece, 1});
  for (const size_t length : {size_t{3}, size_t{5}, size_t{0}}) {
    EXPECT_EQ(read_memory_file(*file, {&length, 1}).error().code, ErrorCode::kParse);
  }
  const Descriptor folder(::open("/", O_RDONLY));
  const size_t none = 0;
  EXPECT_FALSE(read_memory_file(folder, {&none, 1}).ok());
}

TEST_F(LineChannelTest, AFileOfHolesThatMemoryCannotHoldIsRefused) {
  constexpr size_t kBytes = size_t{1} << 50;
  const auto file = make_memory_file({});
  ASSERT_EQ(::ftruncate(file->get(), kBytes), 0);
  EXPECT_EQ(read_memory_file(*file, {&kBytes, 1}).error().code, ErrorCode::kOutOfMemory);
}

TEST_F(LineChannelTest, RefusesWhatIsNoMessage) {
  for (const char* text :
       {"words\n", "[1]\n", "\n", "{\"files\": 1}\n", "{\"files\": -1}\n", "{\"files\": \"two\"}\n",
        "{\"a\": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}\n"}) {
    SetUp();
    write_raw(text);
    EXPECT_EQ(hear().error().code, ErrorCode::kParse) << text;
  }
}

TEST_F(LineChannelTest, ALineWithoutAnEndIsRefused) {
  std::thread sender([&] {
    const std::string chunk(size_t{1} << 20, 'x');
    for (size_t sent = 0; sent <= LineChannel::kMaxLine;) {
      const ssize_t count = ::send(raw_.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  });
  EXPECT_EQ(hear().error().code, ErrorCode::kParse);
  b_.reset();
  sender.join();
}

TEST_F(LineChannelTest, DoesNotWaitForOneThatReadsSlowly) {
  std::atomic<bool> done{false};
  std::thread reader([&] {
    char some[64];
    for (; !done; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      (void)::recv(b_->socket(), some, sizeof some, MSG_DONTWAIT);
  });
  const Json large{{"text", std::string(size_t{8} << 20, 'x')}};
  make_impatient();
  EXPECT_EQ(a_->send(large).error().code, ErrorCode::kDeadline);
  done = true;
  reader.join();
  EXPECT_EQ(a_->send(Json{{"n", 1}}).error().code, ErrorCode::kDeadline)
      << "it would be the end of the other line";
}

TEST_F(LineChannelTest, SaysWhenTheOtherEndIsGoneAndDoesNotWaitForOneThatDoesNotRead) {
  const Json large{{"text", std::string(size_t{8} << 20, 'x')}};
  make_impatient();
  EXPECT_EQ(a_->send(large).error().code, ErrorCode::kDeadline) << "nobody reads";
  b_.reset();
  EXPECT_FALSE(a_->send(Json{{"n", 1}}).ok()) << "and no signal ends the process";
  const auto open = a_->receive();
  ASSERT_TRUE(open.ok());
  EXPECT_FALSE(*open);
}

}  // namespace
}  // namespace moetune::worker

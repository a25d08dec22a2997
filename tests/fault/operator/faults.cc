#include "fault/operator/faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tuner/virtual_time.h"

namespace moetune::testing {

namespace {

class VirtualFaultyDevice final : public FaultyDevice {
 public:
  void lose() override { is_lost_ = true; }
  void spend_us(double us) override { host_.spend_us(us); }

  const DeviceProperties& properties() const override { return host_.properties(); }
  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    return host_.allocate(bytes);
  }
  Status upload(void* device, const void* host, size_t bytes) override {
    return is_lost_ ? lost() : host_.upload(device, host, bytes);
  }
  Status download(void* host, const void* device, size_t bytes) override {
    return is_lost_ ? lost() : host_.download(host, device, bytes);
  }
  Status fill(void* device, uint8_t byte, size_t bytes) override {
    return is_lost_ ? lost() : host_.fill(device, byte, bytes);
  }
  Status run(const DeviceCall& call) override { return is_lost_ ? lost() : host_.run(call); }
  Result<std::unique_ptr<TimedSequence>> record(std::vector<DeviceCall> calls) override {
    return host_.record(std::move(calls));
  }
  DeviceState state() override { return {}; }
  size_t last_level_cache_bytes() const override { return host_.last_level_cache_bytes(); }
  size_t free_memory_bytes() override { return host_.free_memory_bytes(); }

 private:
  static Status lost() { return Error{ErrorCode::kRun, "the device is lost"}; }

  VirtualTimeDevice host_;
  bool is_lost_ = false;
};

using std::chrono::milliseconds;

const float* input(const Call& call) { return call.arguments->at(0).as<const float>(); }
float* output(const Call& call) { return call.arguments->at(1).as<float>(); }
int64_t values(const Call& call) { return call.arguments->at(0).values(); }

void doubled(const Call& call, int64_t count) {
  for (int64_t i = 0; i < count; ++i) output(call)[i] = 2 * input(call)[i];
}

[[noreturn]] void crash() {
  ::raise(SIGSEGV);
  std::abort();
}

// Compilers may assume that a loop without effects ends.
[[noreturn]] void hang() {
  volatile bool is_going_on = true;
  while (is_going_on) {
  }
  std::abort();
}

// Far more than a test allows a helper. Under a sanitizer, which knows no limit, only what such a
// hog would get in the end.
void eat_memory() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kBites = 0;
#else
  constexpr int kBites = 64;
#endif
  constexpr size_t kBite = size_t{64} << 20;
  std::vector<std::unique_ptr<char[]>> eaten;
  while (eaten.size() < kBites) {
    eaten.push_back(std::make_unique<char[]>(kBite));  // Zeroed, so that it is really there.
  }
  if (kBites == 0) throw std::bad_alloc();
}

// A child that outlives what made it, with all its descriptors.
void leave_a_child() {
  if (::fork() != 0) return;
  std::this_thread::sleep_for(std::chrono::hours(1));
  ::_exit(0);
}

void flood() {
  const std::string line(1000, 'x');
  for (int i = 0; i < 1000; ++i) {
    std::fprintf(stdout, "%d %s\n", i, line.c_str());
    std::fprintf(stderr, "%d %s\n", i, line.c_str());
  }
  std::fputs("the end of the flood\n", stderr);
}

void close_files() {
  for (int number = 0; number < 1024; ++number) ::close(number);
}

void scribble_on_the_socket() {
  constexpr std::string_view kNonsense = "{\"id\": this is not JSON\n";
  [[maybe_unused]] const ssize_t written = ::write(3, kNonsense.data(), kNonsense.size());
}

using Fault = std::function<void(const Call&)>;

// Those that happen before the kernel computes what it should.
const std::map<std::string_view, Fault>& faults_before() {
  static const std::map<std::string_view, Fault> faults = {
      {"crash", [](const Call&) { crash(); }},
      {"abort", [](const Call&) { std::abort(); }},
      {"exit", [](const Call&) { std::exit(0); }},
      {"hang", [](const Call&) { hang(); }},
      {"throw", [](const Call&) { throw std::runtime_error("of its own making"); }},
      {"memory_hog", [](const Call&) { eat_memory(); }},
      {"closes_files", [](const Call&) { close_files(); }},
      {"forks_and_crashes",
       [](const Call&) {
         leave_a_child();
         crash();
       }},
      {"writes_to_the_socket", [](const Call&) { scribble_on_the_socket(); }},
      {"slow", [](const Call&) { std::this_thread::sleep_for(milliseconds(5)); }},
      {"floods", [](const Call&) { flood(); }},
      {"leaves_a_child", [](const Call&) { leave_a_child(); }},
  };
  return faults;
}

// Those that spoil what was computed.
const std::map<std::string_view, Fault>& faults_after() {
  static const std::map<std::string_view, Fault> faults = {
      {"wrong", [](const Call& call) { output(call)[values(call) / 2] += 1; }},
      {"not_a_number",
       [](const Call& call) { output(call)[0] = std::numeric_limits<float>::quiet_NaN(); }},
      {"past_the_end", [](const Call& call) { output(call)[values(call)] = 0; }},
      {"changes_its_input", [](const Call& call) { const_cast<float*>(input(call))[0] += 1; }},
  };
  return faults;
}

}  // namespace

std::unique_ptr<FaultyDevice> make_faulty_device() {
  return std::make_unique<VirtualFaultyDevice>();
}

void compile_faulty(std::string_view kind) {
  if (kind == "crash_in_compile") crash();
  if (kind == "hang_in_compile") hang();
  if (kind == "throw_in_compile") throw std::runtime_error("no such instruction");
}

Status run_faulty(std::string_view kind, const Call& call, int runs, FaultyDevice& device) {
  constexpr int kRightAtFirst = 20;
  if (const auto fault = faults_before().find(kind); fault != faults_before().end())
    fault->second(call);
  if (kind == "loses_the_device") {
    device.lose();
    return Error{ErrorCode::kRun, "an illegal access"};
  }
  if (kind == "unwritten") return {};
  doubled(call, kind == "half_written" ? values(call) / 2 : values(call));
  if (kind == "wrong_later" && runs > kRightAtFirst) output(call)[0] += 1;
  if (const auto fault = faults_after().find(kind); fault != faults_after().end())
    fault->second(call);
  return {};
}

}  // namespace moetune::testing

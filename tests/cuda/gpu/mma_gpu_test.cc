// cuda.mma on a real GPU: every kind of tactic against the reference, on odd sizes and skewed
// traffic; graph replay; the same bits twice; weights there and back.
//
// MOETUNE_MMA_POINTS says how many tactics of each stage are tried at each place (3 where it is not
// set).
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>

#include "../mma_cases.h"
#include "cuda/mma/runner.h"
#include "gpu_test.h"
#include "ops/moe/arguments.h"
#include "ops/moe/reference.h"
#include "ops/moe/verify.h"
#include "ops/moe/weights.h"

namespace moetune::cuda {
namespace {

constexpr int64_t kTokens[] = {1, 2, 3, 7, 16, 33, 64, 127, 128, 129, 257, 1000};

/// Inputs of one call on the device, and the rows of its output that are known to be right.
struct DeviceCase {
  MoeInputs inputs;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  Tensors arguments;
  ReferenceRows reference;
};

class MmaGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device_->context()->architecture().sm() < 80) GTEST_SKIP() << "needs sm_80";
  }

  void use(const FusedMoeSpec& spec, DataKind kind) {
    spec_ = kind == DataKind::kExact ? exact_variant(spec) : spec;
    kind_ = kind;
    auto runner = make_mma_runner(spec_, device_->context());
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    runner_ = std::move(*runner);
    auto source = make_random_weights(spec_, kind, 5);
    ASSERT_TRUE(source.ok()) << source.error().message;
    source_ = std::move(*source);
    auto packed = runner_->pack("fragments", *source_);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    packed_ = *packed;
  }

  DeviceCase make_case(int64_t tokens, const std::string& workload, uint64_t sample) {
    DeviceCase c;
    const int64_t first = spec_.ep > 1 ? spec_.experts : 0;
    c.inputs = *make_inputs(spec_, *parse_workload(workload), tokens, kind_, 3, sample, first);
    const size_t value = spec_.output == DataType::kF32 ? 4 : 2;
    std::vector<uint8_t> output(static_cast<size_t>(tokens * spec_.hidden) * value, 0xFF);
    Tensors host = call_arguments(spec_, c.inputs, output.data());
    const std::vector<int64_t> rows = sample_rows(spec_, c.inputs, 12, 1);
    c.reference = *reference_rows(spec_, *source_, host, rows, 4);
    c.arguments = host;
    for (Tensor& tensor : c.arguments) {
      std::vector<uint8_t> bytes(tensor.bytes());
      std::memcpy(bytes.data(), tensor.data, bytes.size());
      c.buffers.push_back(upload(bytes));
      tensor.data = c.buffers.back()->data();
    }
    return c;
  }

  /// A call with a workspace full of NaN patterns.
  Call make_call(const DeviceCase& c, const Candidate& candidate, int64_t tokens) {
    workspace_bytes_ = runner_->workspace_bytes(candidate, tokens);
    workspace_ = std::move(*device_->allocate(workspace_bytes_));
    EXPECT_TRUE(device_->fill(workspace_->data(), 0xFF, workspace_bytes_).ok());
    EXPECT_TRUE(device_->fill(c.arguments.back().data, 0xFF, c.arguments.back().bytes()).ok());
    Call call;
    call.arguments = &c.arguments;
    call.weights = packed_.get();
    call.workspace = workspace_->data();
    call.workspace_bytes = workspace_bytes_;
    return call;
  }

  Status run(Executable& executable, Call call) {
    return device_->run([&](void* stream) {
      call.stream = stream;
      return executable.run(call);
    });
  }

  std::string judge(const DeviceCase& c) {
    std::vector<uint8_t> output = download<uint8_t>(*c.buffers.back());
    Tensor tensor = c.arguments.back();
    tensor.data = output.data();
    std::vector<std::byte> rows = gather_rows(tensor, c.reference.tokens);
    tensor.data = rows.data();
    tensor.shape[0] = static_cast<int64_t>(c.reference.tokens.size());
    const OutputCheck check = kind_ == DataKind::kExact ? compare_exact(c.reference, tensor)
                                                        : compare_close(c.reference, tensor);
    return check.verdict.ok ? "" : check.verdict.reason;
  }

  /// The default and some points of each scheme, all compiled.
  std::vector<std::pair<Candidate, std::shared_ptr<Executable>>> candidates(int64_t tokens,
                                                                            uint64_t seed) {
    std::vector<Candidate> list = {runner_->default_candidate(tokens)};
    for (const Scheme& scheme : runner_->schemes()) {
      const auto first = sample_points(scheme.stages[0].space, tokens, points_per_stage(3), seed);
      const auto second =
          sample_points(scheme.stages[1].space, tokens, points_per_stage(3), seed + 1);
      if (first.empty() || second.empty()) continue;
      for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
        Candidate candidate = list.front();
        candidate.scheme = scheme.name;
        candidate.stages = {{"gemm1", first[i % first.size()]},
                            {"gemm2", second[i % second.size()]}};
        list.push_back(std::move(candidate));
      }
    }
    std::vector<std::future<Result<std::shared_ptr<Executable>>>> compiling;
    for (const Candidate& candidate : list) {
      compiling.push_back(std::async(std::launch::async,
                                     [&, this] { return runner_->compile(candidate, tokens); }));
    }
    std::vector<std::pair<Candidate, std::shared_ptr<Executable>>> compiled;
    for (size_t i = 0; i < list.size(); ++i) {
      auto executable = compiling[i].get();
      EXPECT_TRUE(executable.ok()) << list[i].text() << ": " << executable.error().message;
      if (executable.ok()) compiled.emplace_back(list[i], *executable);
    }
    return compiled;
  }

  void check_everything(const std::vector<MmaCase>& cases, DataKind kind) {
    for (const MmaCase& c : cases) {
      ASSERT_NO_FATAL_FAILURE(use(c.spec, kind));
      for (int64_t tokens : kTokens) {
        const DeviceCase uniform = make_case(tokens, "uniform", 0),
                         skewed = make_case(tokens, "zipf:1.2", 1);
        for (const auto& [candidate, executable] : candidates(tokens, 1)) {
          for (const DeviceCase* traffic : {&uniform, &skewed}) {
            const Status status = run(*executable, make_call(*traffic, candidate, tokens));
            ASSERT_TRUE(status.ok()) << candidate.text() << ": " << status.error().message;
            EXPECT_EQ(judge(*traffic), "") << c.name << " T=" << tokens << " " << candidate.text();
          }
        }
      }
    }
  }

  FusedMoeSpec spec_;
  DataKind kind_ = DataKind::kRealistic;
  std::unique_ptr<TunableRunner> runner_;
  std::unique_ptr<WeightSource> source_;
  std::shared_ptr<PackedWeights> packed_;
  std::unique_ptr<DeviceBuffer> workspace_;
  size_t workspace_bytes_ = 0;
};

class MmaGpuFormats : public MmaGpu, public ::testing::WithParamInterface<WeightFormat> {};

TEST_P(MmaGpuFormats, Exact) { check_everything(odd_cases(GetParam()), DataKind::kExact); }
TEST_P(MmaGpuFormats, Close) { check_everything(odd_cases(GetParam()), DataKind::kRealistic); }

TEST_F(MmaGpu, ManyTokensInPassesEqualFewAtATime) {
  ASSERT_NO_FATAL_FAILURE(use(mma_spec(128, 64, 8, 2, WeightFormat::kBf16), DataKind::kRealistic));
  const int64_t tokens = 20000;
  const DeviceCase c = make_case(tokens, "uniform", 0);
  const Candidate candidate = runner_->default_candidate(tokens);
  auto executable = runner_->compile(candidate, tokens);
  ASSERT_TRUE(executable.ok()) << executable.error().message;
  ASSERT_TRUE(run(**executable, make_call(c, candidate, tokens)).ok());
  EXPECT_EQ(judge(c), "");
}

TEST_F(MmaGpu, ReplayAndASecondRunGiveTheSameBits) {
  for (WeightFormat format : kAllFormats) {
    ASSERT_NO_FATAL_FAILURE(use(mma_spec(320, 192, 16, 4, format), DataKind::kRealistic));
    for (int64_t tokens : {1, 16, 300}) {
      const DeviceCase c = make_case(tokens, "zipf:1.2", 2);
      for (const auto& [candidate, executable] : candidates(tokens, 77)) {
        Call call = make_call(c, candidate, tokens);
        ASSERT_TRUE(run(*executable, call).ok());
        const auto eager = download<uint8_t>(*c.buffers.back());
        ASSERT_TRUE(run(*executable, call).ok());
        EXPECT_EQ(download<uint8_t>(*c.buffers.back()), eager) << candidate.text();
        ASSERT_TRUE(device_->fill(c.arguments.back().data, 0xFF, c.arguments.back().bytes()).ok());
        auto& runnable = *executable;
        auto sequence = device_->record({[&](void* stream) {
          call.stream = stream;
          return runnable.run(call);
        }});
        ASSERT_TRUE(sequence.ok()) << sequence.error().message;
        ASSERT_TRUE((*sequence)->sample_us(3).ok());
        EXPECT_EQ(download<uint8_t>(*c.buffers.back()), eager) << candidate.text();
      }
    }
  }
}

/// Compares what comes back with what went in.
class ComparingSink : public WeightSink {
 public:
  explicit ComparingSink(WeightSource& source) : source_(source) {}
  Status chunk(int64_t index, const Tensors& tensors) override {
    const Tensors expected = *source_.chunk(index);
    EXPECT_EQ(tensors.size(), expected.size());
    for (size_t i = 0; i < std::min(tensors.size(), expected.size()); ++i) {
      EXPECT_EQ(tensors[i].name, expected[i].name);
      EXPECT_EQ(tensors[i].shape, expected[i].shape);
      EXPECT_EQ(std::memcmp(tensors[i].data, expected[i].data, expected[i].bytes()), 0)
          << expected[i].name << " of " << index;
    }
    ++chunks;
    return {};
  }
  int64_t chunks = 0;

 private:
  WeightSource& source_;
};

TEST_F(MmaGpu, UnpackingIsTheInverseOfPacking) {
  for (WeightFormat format : kAllFormats) {
    for (const MmaCase& c : odd_cases(format)) {
      ASSERT_NO_FATAL_FAILURE(use(c.spec, DataKind::kRealistic));
      ComparingSink sink(*source_);
      const Status status = runner_->unpack(*packed_, sink);
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(sink.chunks, spec_.held_experts());
    }
  }
}

TEST_F(MmaGpu, CallsThatDoNotFitAreRefused) {
  ASSERT_NO_FATAL_FAILURE(use(mma_spec(128, 64, 8, 2, WeightFormat::kBf16), DataKind::kRealistic));
  const Candidate candidate = runner_->default_candidate(4);
  auto executable = runner_->compile(candidate, 4);
  ASSERT_TRUE(executable.ok());
  const DeviceCase c = make_case(5, "uniform", 0);
  Call call = make_call(c, candidate, 5);
  Status status = run(**executable, call);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("5 tokens"), std::string::npos) << status.error().message;
  const DeviceCase fits = make_case(4, "uniform", 0);
  call = make_call(fits, candidate, 4);
  call.workspace_bytes = 16;
  status = run(**executable, call);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("workspace"), std::string::npos);
}

TEST_F(MmaGpu, NotANumberAmongFp8WeightsIsRefused) {
  ASSERT_NO_FATAL_FAILURE(use(mma_spec(128, 64, 8, 2, WeightFormat::kFp8), DataKind::kRealistic));
  class Spoiled : public WeightSource {
   public:
    explicit Spoiled(WeightSource& source) : source_(source) {}
    int64_t chunks() const override { return source_.chunks(); }
    Result<Tensors> chunk(int64_t index) override {
      auto tensors = source_.chunk(index);
      if (index == 5) (*tensors)[2].as<uint8_t>()[77] = 0xFF;
      return tensors;
    }

   private:
    WeightSource& source_;
  } spoiled(*source_);
  auto packed = runner_->pack("fragments", spoiled);
  ASSERT_FALSE(packed.ok());
  EXPECT_NE(packed.error().message.find("NaN"), std::string::npos) << packed.error().message;
}

INSTANTIATE_TEST_SUITE_P(Formats, MmaGpuFormats, ::testing::ValuesIn(kAllFormats),
                         [](const auto& which) {
                           std::string name = to_string(which.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moetune::cuda

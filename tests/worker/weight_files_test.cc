#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "worker/worker_host.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two tensors a chunk: [2] f32 with 10 * index and 10 * index + 1, and one byte with the index.
class CountingSource final : public WeightSource {
 public:
  explicit CountingSource(int64_t count) : count_(count) {}
  int64_t chunks() const override { return count_; }
  Result<Tensors> chunk(int64_t index) override {
    ++asked;
    values_[0] = 10.0f * static_cast<float>(index);
    values_[1] = values_[0] + 1;
    byte_ = static_cast<uint8_t>(index);
    Tensors tensors{{"w", DataType::kF32, {2}, values_}, {"b", DataType::kU8, {1}, &byte_}};
    if (index == odd_one) tensors[0].shape = {1};
    return tensors;
  }

  int asked = 0;
  int64_t odd_one = -1;

 private:
  int64_t count_;
  float values_[2] = {};
  uint8_t byte_ = 0;
};

class SourceBench final : public Workbench {
 public:
  const Problem& problem() const override { return problem_; }
  WeightSource& weights(Scale scale) override { return scale == Scale::kFull ? full : part; }
  Result<Tensors> arguments(const Case&, Scale, int) override { return Tensors{}; }
  int outputs() const override { return 1; }
  std::vector<int64_t> check_rows(const Case&, Scale, int) override { return {}; }
  Verdict judge(const Case&, Scale, int, std::span<const int64_t>, const Tensors&) override {
    return {};
  }
  Work work(const Case&, Scale, int) override { return {}; }

  CountingSource full{3};
  CountingSource part{1};

 private:
  Problem problem_;
};

TEST(WeightFiles, HoldEachTensorOfAllChunksTogether) {
  SourceBench bench;
  WeightFiles files(bench);
  const auto file = files.at(Scale::kFull);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Tensors& tensors = (*file)->tensors;
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_THAT(tensors[0].shape, ElementsAre(3, 2));
  EXPECT_THAT(tensors[1].shape, ElementsAre(3, 1));
  EXPECT_EQ(tensors[0].data, nullptr);
  char bytes[28] = {};
  ASSERT_EQ(::pread((*file)->file.get(), bytes, sizeof bytes, 0), 27);
  float values[6];
  std::memcpy(values, bytes, sizeof values);
  EXPECT_THAT(values, ElementsAre(0, 1, 10, 11, 20, 21));
  EXPECT_THAT(std::vector<char>(bytes + 24, bytes + 27), ElementsAre(0, 1, 2));
}

TEST(WeightFiles, AreMadeOnceForEachScale) {
  SourceBench bench;
  WeightFiles files(bench);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(files.at(Scale::kFull).ok());
    ASSERT_TRUE(files.at(Scale::kSubset).ok());
  }
  EXPECT_EQ(bench.full.asked, 3);
  EXPECT_EQ(bench.part.asked, 1);
}

TEST(WeightFiles, ChunksOfDifferentShapesAreRefused) {
  SourceBench bench;
  bench.full.odd_one = 2;
  WeightFiles files(bench);
  const auto file = files.at(Scale::kFull);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(file.error().message, HasSubstr("chunk 2"));
}

}  // namespace
}  // namespace moetune

// Shared experts, which files hold as one expert beside those that are routed to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>

#include "checkpoint/expert_weights.h"
#include "checkpoint/made_checkpoint.h"

namespace moetune::checkpoint {
namespace {

using namespace testing_checkpoint;  // NOLINT: the tests' own
using testing_checkpoint::opened;
using enum WeightFormat;

// What a checkpoint calls shared_experts: the rows of all of them in one matrix.
class SharedExperts : public testing::TestWithParam<std::pair<WeightFormat, int>> {
 protected:
  // Matrices of several experts side by side: `parts` of each, of rows that follow each other.
  static std::string joined(const std::vector<std::string>& matrices, size_t rows) {
    std::string all;
    for (size_t row = 0; row < rows; ++row)
      for (const std::string& matrix : matrices) {
        const size_t bytes = matrix.size() / rows;
        all += matrix.substr(row * bytes, bytes);
      }
    return all;
  }

  static void add_shared(const FusedMoeSpec& spec, WeightSource& weights,
                         std::vector<Written>& tensors) {
    std::map<std::string, std::vector<std::string>> parts;  // By the names that a maker gives.
    for (int64_t expert = spec.experts; expert < spec.held_experts(); ++expert) {
      FusedMoeSpec one = spec;
      one.experts = one.global_experts = one.top_k = 1;
      one.shared_experts = 0;
      class One final : public WeightSource {
       public:
        One(WeightSource& all, int64_t index) : all_(all), index_(index) {}
        int64_t chunks() const override { return 1; }
        Result<Tensors> chunk(int64_t) override { return all_.chunk(index_); }

       private:
        WeightSource& all_;
        int64_t index_;
      } source(weights, expert);
      for (Written tensor : CheckpointMaker(one, Style::kProjections).tensors(source)) {
        const size_t at = tensor.name.find("experts.0.");
        if (at == std::string::npos) continue;
        tensor.name.replace(at, std::strlen("experts.0."), "shared_experts.");
        const bool is_new = !parts.contains(tensor.name);
        parts[tensor.name].push_back(tensor.bytes);
        if (is_new) tensors.push_back(tensor);
      }
    }
    for (Written& tensor : tensors) {
      const auto found = parts.find(tensor.name);
      if (found == parts.end() || tensor.shape.empty()) continue;
      const bool is_down = tensor.name.find("down_proj") != std::string::npos;
      tensor.bytes = joined(found->second, is_down ? static_cast<size_t>(tensor.shape[0]) : 1);
      tensor.shape[is_down ? 1 : 0] *= spec.shared_experts;
    }
  }
};

TEST_P(SharedExperts, FollowTheRoutedOnes) {
  const auto [format, count] = GetParam();
  ModelSpec model = small_model(format, Style::kProjections, /*is_uneven=*/false);
  model.shared_experts = count;
  model.shared_intermediate = count * model.intermediate;
  const auto spec = layer_spec(model, LayerChoices{.shared_experts = true}, {}).value();
  const auto written = std::move(make_random_weights(spec, DataKind::kExact, 1)).value();
  const Folder folder;
  auto tensors = CheckpointMaker(spec, Style::kProjections).tensors(*written);
  add_shared(spec, *written, tensors);
  const auto checkpoint = opened(folder, tensors);
  auto read = make_expert_weights(checkpoint, model, kLayer, spec, 0);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ((*read)->chunks(), spec.experts + count);
  for (const int64_t expert : {spec.experts, int64_t{2}, spec.held_experts() - 1}) {
    const auto chunk = (*read)->chunk(expert);
    ASSERT_TRUE(chunk.ok()) << chunk.error().message;
    expect_equal(*chunk, written->chunk(expert).value());
  }

  // The ranks' rows make up the whole.
  const int64_t last = spec.held_experts() - 1;
  std::string rows;
  for (int rank = 0; rank < 2; ++rank) {
    const ParallelLayout half{.tp = 2, .rank = rank};
    const auto share = layer_spec(model, LayerChoices{.shared_experts = true}, half).value();
    auto part = make_expert_weights(checkpoint, model, kLayer, share, rank);
    ASSERT_TRUE(part.ok()) << part.error().message;
    const Tensors chunk = (*part)->chunk(last).value();
    const std::string w13 = bytes_in(*find(chunk, "w13"));
    rows += w13.substr(w13.size() / 2);
  }
  const std::string whole_w13 = bytes_in(*find(written->chunk(last).value(), "w13"));
  EXPECT_TRUE(rows == whole_w13.substr(whole_w13.size() / 2)) << "rows of up";
}

INSTANTIATE_TEST_SUITE_P(Formats, SharedExperts,
                         testing::Values(std::pair{kBf16, 1}, std::pair{kBf16, 2},
                                         std::pair{kFp8Block, 2}, std::pair{kNvfp4, 1},
                                         std::pair{kMxfp4, 2}),
                         [](const auto& which) {
                           std::string name = moetune::to_string(which.param.first);
                           std::erase(name, '-');
                           return name + std::to_string(which.param.second);
                         });

TEST(SharedExpertsOfAFile, ThatHasNone) {
  ModelSpec model = small_model(kBf16, Style::kProjections);
  model.shared_experts = 1;
  model.shared_intermediate = model.intermediate;
  const auto spec = layer_spec(model, LayerChoices{.shared_experts = true}, {}).value();
  const auto written = std::move(make_random_weights(spec, DataKind::kExact, 1)).value();
  const Folder folder;
  const auto checkpoint =
      opened(folder, CheckpointMaker(spec, Style::kProjections).tensors(*written));
  const auto read = make_expert_weights(checkpoint, model, kLayer, spec, 0);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, ::testing::HasSubstr("shared_experts.up_proj"));
}

}  // namespace
}  // namespace moetune::checkpoint

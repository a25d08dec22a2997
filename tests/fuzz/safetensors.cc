// A model folder with one file of weights. Input: config.json, a line "====", then the bytes of
// model.safetensors. Whatever the file says of itself, each layer's experts and router are an error
// or memory that can be read, for every rank.
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/scratch_folder.h"
#include "model/model_spec.h"
#include "moetune/checkpoint.h"
#include "ops/moe/format.h"
#include "ops/moe/weights.h"

namespace moetune::fuzz {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 24;  // Of an expert: larger ones only take time.

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Reads every byte: a sanitizer, or a page that is not there, tells of those that are not its own.
void touch(const Tensors& chunk) {
  volatile unsigned char sum = 0;
  for (const Tensor& tensor : chunk) {
    const auto* bytes = tensor.as<const unsigned char>();
    for (size_t i = 0; i < tensor.bytes(); ++i) sum = sum ^ bytes[i];
  }
}

void read_layer(const std::string& folder, const ModelSpec& model, int64_t layer,
                const ParallelLayout& layout) {
  const auto spec = layer_spec(model, std::nullopt, layout);
  if (!spec.ok() || expert_weight_bytes(*spec) > kMostBytes) return;
  const auto weights = checkpoint_weights(folder, layer, *spec, layout.rank);
  if (!weights.ok()) {
    require(!weights.error().message.empty(), "an error says what is wrong");
    return;
  }
  const int64_t experts = std::min<int64_t>((*weights)->chunks(), 4);
  for (int64_t expert = 0; expert < experts; ++expert) {
    const auto chunk = (*weights)->chunk(expert);
    if (!chunk.ok()) continue;
    require(view_expert(*spec, *chunk).ok(), "a chunk is what the specification says");
    touch(*chunk);
  }
}

void run(std::string_view input) {
  static const ScratchFolder scratch;
  const std::string_view config = take_until(input, "\n====\n");
  write(scratch.path() / "config.json", config);
  write(scratch.path() / "model.safetensors", input);
  const std::string folder = scratch.path().string();
  const auto model = load_model(folder);
  if (!model.ok()) return;
  for (const int64_t layer : {int64_t{0}, model->dense_first, model->layers}) {
    read_layer(folder, *model, layer, {});
    read_layer(folder, *model, layer, {.tp = 2, .rank = 1});
    read_layer(folder, *model, layer, {.ep = 2, .rank = 1});
  }
  (void)checkpoint_router(folder, model->dense_first);
}

const Register registered("safetensors", run);

}  // namespace
}  // namespace moetune::fuzz

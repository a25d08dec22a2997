// Whatever a config.json holds, reading it ends with a model that makes sense or with an error that
// says why.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "model/configs.h"
#include "model/model_spec.h"

namespace moetune {
namespace {

std::string mutated(std::string text, Random& random) {
  static const std::vector<std::string> pieces = {"null",
                                                  "-1",
                                                  "1e18",
                                                  "1e999",
                                                  "\"\"",
                                                  "[]",
                                                  "{}",
                                                  "true",
                                                  "0",
                                                  "18446744073709551615",
                                                  ",",
                                                  ":",
                                                  "\\u0000",
                                                  "\xff",
                                                  "[[[[[[",
                                                  "\"num_experts\":",
                                                  "128",
                                                  "0.5",
                                                  "{\"text_config\":"};
  const uint32_t edits = 1 + random.below(4);
  for (uint32_t edit = 0; edit < edits && !text.empty(); ++edit) {
    const size_t at = random.below(static_cast<uint32_t>(text.size()));
    switch (random.below(5)) {
      case 0: text[at] = static_cast<char>(random.below(256)); break;
      case 1: text.erase(at, 1 + random.below(20)); break;
      case 2: text.insert(at, pieces[random.below(static_cast<uint32_t>(pieces.size()))]); break;
      case 3:
        text.insert(
            at, text.substr(random.below(static_cast<uint32_t>(text.size())), random.below(40)));
        break;
      default: {  // A whole number becomes something else: what most wrong files have in common.
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const size_t end = text.find_first_not_of("0123456789.", digit);
        text.replace(digit, end - digit,
                     pieces[random.below(static_cast<uint32_t>(pieces.size()))]);
      }
    }
  }
  return text;
}

TEST(MutatedConfigs, GiveAValidLayerOrAnErrorWithAMessage) {
  Json nested = {{"text_config", deepseek_v3_config()}};
  const std::vector<std::string> seeds = {qwen3_moe_config().dump(), deepseek_v3_config().dump(),
                                          gpt_oss_config().dump(), nested.dump(1)};
  const std::string quantisation =
      R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["model.layers.0*"]}})";
  Random random(20240611);
  int read = 0;
  constexpr int kRounds = 6000;
  for (int round = 0; round < kRounds; ++round) {
    const std::string config = mutated(seeds[random.below(4)], random);
    const std::string beside = random.below(4) == 0 ? mutated(quantisation, random) : "";
    const auto model = parse_model(config, beside, "config.json");
    if (!model.ok()) {
      EXPECT_FALSE(model.error().message.empty()) << config;
      continue;
    }
    ++read;
    const auto layer = layer_spec(*model, std::nullopt, {.tp = 2, .ep = 2, .rank = 3});
    if (layer.ok()) {
      EXPECT_TRUE(validate(*layer).ok()) << config;
    }
  }
  // Both outcomes must really be tried.
  EXPECT_GT(read, kRounds / 20);
  EXPECT_LT(read, kRounds - kRounds / 20);
}

}  // namespace
}  // namespace moetune

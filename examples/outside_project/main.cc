// Runs a small fused-MoE layer with an installed moetune. Exits with 0 where the layer's output is
// a real one: finite, not all zero, and the same whether a token comes alone or among others.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "moetune/cpp.h"

namespace {

moetune::FusedMoeSpec small_layer() {
  moetune::FusedMoeSpec spec;
  spec.hidden = 256;
  spec.intermediate = 128;
  spec.experts = spec.global_experts = 8;
  spec.top_k = 2;
  return spec;
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

bool is_real(const std::vector<uint16_t>& output) {
  bool any = false;
  for (const uint16_t bits : output) {
    if (!std::isfinite(from_bf16(bits))) return false;
    any |= from_bf16(bits) != 0;
  }
  return any;
}

moetune::Result<bool> run_layer() {
  constexpr int64_t kTokens = 4;
  const moetune::FusedMoeSpec spec = small_layer();
  auto weights = moetune::random_weights(spec, /*seed=*/1);
  if (!weights.ok()) return weights.error();
  moetune::FusedMoeOptions options;
  options.device = "cpu";
  options.max_tokens = kTokens;
  auto layer = moetune::FusedMoe::create(spec, **weights, options);
  if (!layer.ok()) return layer.error();

  const auto hidden_size = static_cast<size_t>(spec.hidden);
  std::vector<uint16_t> hidden(kTokens * hidden_size);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = i % 3 == 0 ? 0x3F80 : 0xBF00;  // 1, -0.5
  std::vector<float> logits(kTokens * static_cast<size_t>(spec.experts));
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));

  std::vector<uint16_t> together(hidden.size()), alone(hidden_size);
  auto status = (*layer)->run(kTokens, hidden.data(), logits.data(), together.data());
  if (status.ok()) status = (*layer)->run(1, hidden.data(), logits.data(), alone.data());
  if (!status.ok()) return status.error();

  const auto selected = (*layer)->selected(kTokens);
  std::printf("%s (%s)\n", selected.candidate->text().c_str(), selected.reason);
  return is_real(together) && std::equal(alone.begin(), alone.end(), together.begin());
}

}  // namespace

int main() {
  const auto right = run_layer();
  if (!right.ok()) {
    std::fprintf(stderr, "%s\n%s\n", right.error().message.c_str(), right.error().hint.c_str());
    return 1;
  }
  return *right ? 0 : 1;
}

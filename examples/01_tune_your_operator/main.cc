// Tunes an operator of one's own: the transposition of a matrix, in blocks. How large should a
// block be, and should it be read row by row or column by column? That depends on the caches of the
// machine at hand, so let the machine say.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "moetune/autotuner.h"
#include "moetune/function_runner.h"
#include "moetune/host_device.h"

using namespace moetune;

// output[j, i] = input[i, j]. The arguments come in the order in which main() lists them.
Status transpose(const Call& call, const Tactic& tactic) {
  const Tensor& input = (*call.arguments)[0];
  const float* from = input.as<float>();
  float* to = (*call.arguments)[1].as<float>();
  const int64_t rows = input.shape[0], columns = input.shape[1];
  const int64_t height = tactic.number("height"), width = tactic.number("width");
  for (int64_t top = 0; top < rows; top += height) {
    for (int64_t left = 0; left < columns; left += width) {
      const int64_t bottom = std::min(top + height, rows), right = std::min(left + width, columns);
      for (int64_t i = top; i < bottom; ++i) {
        for (int64_t j = left; j < right; ++j) to[j * rows + i] = from[i * columns + j];
      }
    }
  }
  return {};
}

int main() {
  FunctionRunner::Definition blocked;
  blocked.name = "transpose.blocked";
  blocked.space = Space({{"height", {1, 4, 8, 16, 32, 64}, "rows of a block"},
                         {"width", {8, 16, 32, 64, 2048}, "columns of a block"}});
  blocked.default_tactic = [](int64_t) { return Tactic({{"height", 1}, {"width", 2048}}); };
  blocked.run = transpose;
  FunctionRunner runner(std::move(blocked));
  TunableRunner* const runners[] = {&runner};

  constexpr int64_t kRows = 1024, kColumns = 2048;
  std::vector<float> input(kRows * kColumns, 1.5f), output(input.size());
  const Tensors arguments = {{"input", DataType::kF32, {kRows, kColumns}, input.data()},
                             {"output", DataType::kF32, {kColumns, kRows}, output.data()}};

  const auto device = make_host_device();
  AutoTuner tuner(device->properties());
  const TuningConfig config;  // All sizes are fixed here; a DynamicDim would name one that changes.
  {
    const autotune scope(tuner, {.budget_s = 2});  // Inside, what is not known yet is tuned.
    if (auto tuned = tuner.choose_one("transpose", runners, config, arguments, *device);
        !tuned.ok()) {
      std::fprintf(stderr, "%s\n", tuned.error().message.c_str());
      return 1;
    }
  }
  const Choice choice = *tuner.choose_one("transpose", runners, config, arguments, *device);
  if (Status ran = choice.executable->run({.arguments = &arguments}); !ran.ok()) return 1;

  const Evidence evidence = tuner.configuration().plans.front().decisions.front().evidence;
  std::printf("%s: %s, %.2fx the default (95 %% interval %.2f to %.2f)\n",
              to_string(choice.provenance), choice.candidate->text().c_str(), evidence.speedup,
              evidence.speedup_low, evidence.speedup_high);
  std::printf("%.0f us instead of %.0f us; %d candidates tried\n", evidence.chosen.median_us,
              evidence.fallback.median_us, evidence.candidates);
  // tuner.configuration().save_merged(get_config_path(tuner.device())) keeps it for the next start.
  return 0;
}

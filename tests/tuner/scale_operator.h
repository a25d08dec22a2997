// A small operator for tests of choose_one(): output[i, j] = 2 * input[i, j], by tactics "way" =
// 0..3 that take the virtual times, and misbehave in the manner, that a test asks for. Way 0 is the
// default.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "moetune/autotuner.h"
#include "moetune/function_runner.h"
#include "tuner/virtual_time.h"

namespace moetune {

struct ScaleOperator {
  explicit ScaleOperator(VirtualTimeDevice& on, std::string name = "scale.ways",
                         std::vector<SpaceRule> rules = {})
      : device(on), runner(definition(std::move(name), std::move(rules))) {}

  std::array<double, 4> us = {50, 40, 30, 20};  ///< By way.
  std::array<float, 4> factor = {2, 2, 2, 2};   ///< What it multiplies by; 2 is right.
  std::array<bool, 4> fails = {};
  std::array<bool, 4> has_order = {true, true, true, true};  ///< Is deterministic.
  std::array<int, 4> runs = {};

  VirtualTimeDevice& device;
  FunctionRunner runner;

 private:
  FunctionRunner::Definition definition(std::string name, std::vector<SpaceRule> rules) {
    FunctionRunner::Definition made;
    made.name = std::move(name);
    made.space = Space({{"way", {0, 1, 2, 3}, "how to multiply"}}, std::move(rules));
    made.default_tactic = [](int64_t) { return Tactic({{"way", 0}}); };
    made.is_deterministic = [this](const Tactic& tactic) {
      return has_order[static_cast<size_t>(tactic.number("way"))];
    };
    made.run = [this](const Call& call, const Tactic& tactic) -> Status {
      const auto way = static_cast<size_t>(tactic.number("way"));
      ++runs[way];
      if (fails[way]) return Error{ErrorCode::kRun, "refused to run"};
      const Tensor& input = (*call.arguments)[0];
      const Tensor& output = (*call.arguments)[1];
      for (int64_t i = 0; i < input.values(); ++i) {
        output.as<float>()[i] = factor[way] * input.as<float>()[i];
      }
      device.spend_us(us[way]);
      return {};
    };
    return made;
  }
};

/// Arguments of one call with `rows` rows; rows are the dynamic dimension, in powers of two to 64.
struct ScaleCall {
  explicit ScaleCall(int64_t rows, int64_t columns = 8)
      : input(static_cast<size_t>(rows * columns)), output(input.size(), -1.0f) {
    for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 17) - 8;
    arguments = {{"input", DataType::kF32, {rows, columns}, input.data()},
                 {"output", DataType::kF32, {rows, columns}, output.data()}};
  }
  static TuningConfig config() {
    TuningConfig config;
    config.dynamic.push_back({"rows", {{0, 0}, {1, 0}}, *Buckets::powers_of_two(64)});
    return config;
  }

  std::vector<float> input;
  std::vector<float> output;
  Tensors arguments;
};

}  // namespace moetune

// A runner for tests, all of whose properties can be set; running it does nothing but count.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "moetune/runner.h"

namespace moetune {

/// Scheme "single", stage "main", parameter "tile" with values 0 (the default's), 1, 2, 4 and 8.
class SampleRunner final : public TunableRunner {
 public:
  explicit SampleRunner(std::string name = "cpu.one", int version = 1)
      : name_(std::move(name)), version_(version) {
    set_tiles({0, 1, 2, 4, 8});
  }

  void set_tiles(std::vector<ParameterValue> tiles, std::vector<SpaceRule> rules = {}) {
    schemes_ = {{"single", {{"main", Space({{"tile", std::move(tiles), ""}}, std::move(rules))}}}};
  }

  std::string name() const override { return name_; }
  int version() const override { return version_; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t tokens) const override {
    return {name_, version_, "single", {{"main", Tactic({{"tile", default_tile(tokens)}})}}};
  }
  std::string layout(const Candidate& candidate) const override { return layout_of(candidate); }
  bool is_deterministic(const Candidate& candidate) const override {
    return deterministic(candidate);
  }
  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate,
                                              int64_t max_tokens) override {
    compiled.push_back(candidate.text() + " up to " + std::to_string(max_tokens));
    return std::shared_ptr<Executable>(std::make_shared<Nothing>());
  }

  std::function<int64_t(int64_t)> default_tile = [](int64_t) { return 0; };
  std::function<std::string(const Candidate&)> layout_of = [](const Candidate&) {
    return std::string("plain");
  };
  std::function<bool(const Candidate&)> deterministic = [](const Candidate&) { return true; };
  std::vector<std::string> compiled;

 private:
  class Nothing final : public Executable {
   public:
    Status run(const Call&) override { return {}; }
  };

  std::string name_;
  int version_;
  std::vector<Scheme> schemes_;
};

}  // namespace moetune

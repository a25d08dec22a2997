// The space of one stage of a hosted runner.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "moetune/tactic.h"
#include "worker/worker_host.h"

namespace moetune::worker {

/// Not thread-safe, as its questions are not. Spaces made of it share it.
class HostedStage : public std::enable_shared_from_this<HostedStage> {
 public:
  /// `address`: the fields "runner", "scheme" and "stage" of a question about it.
  HostedStage(WorkerQuestion ask, Json address, std::vector<Parameter> parameters)
      : ask_(std::move(ask)), address_(std::move(address)), parameters_(std::move(parameters)) {}

  /// A stage's "name" and "parameters". Fails the reader for what is no space.
  static std::shared_ptr<HostedStage> read(JsonReader& reader, WorkerQuestion ask, Json address);

  const std::string& name() const { return name_; }
  /// Makes this point part of the space, whatever the host searches or excludes. Nothing where its
  /// parameters are not those of the space.
  void add_point(const Tactic& tactic);
  /// What the host searches, and the points that were added.
  Space space();
  /// Why it is not known what the host excludes, at the first number of tokens where it is not.
  /// Empty: it is known wherever that was asked for.
  const std::string& trouble() const { return trouble_; }

 private:
  // By the number of a point: why it is excluded.
  using Excluded = std::map<int64_t, std::string>;

  // The number of a point of the host's own product; -1 for one that is not in it.
  int64_t number_of(const Tactic& tactic) const;
  std::string why_excluded(const Tactic& tactic, int64_t tokens);
  // Where one point is excluded, from a number of tokens to another.
  struct Along {
    int64_t number = -1;
    int64_t from = 0;
    int64_t to = -1;
    std::vector<std::tuple<int64_t, int64_t, std::string>> runs;  // First, last, why.

    bool covers(int64_t point, int64_t tokens) const {
      return point == number && from <= tokens && tokens <= to;
    }
    std::string why(int64_t tokens) const;
  };
  Result<Along> ask_along(const Tactic& tactic, int64_t from, int64_t to);
  const Excluded& excluded_at(int64_t tokens);
  Result<Excluded> ask_excluded(int64_t tokens);

  WorkerQuestion ask_;
  Json address_;
  std::string name_;
  std::vector<Parameter> parameters_;  // As the host lists them.
  std::vector<Tactic> added_;
  std::map<int64_t, Excluded> excluded_;  // By number of tokens.
  Along along_;
  bool asks_along_ = true;
  int64_t last_number_ = -1, last_tokens_ = 0;  // That were asked about.
  std::string trouble_;
};

}  // namespace moetune::worker

// Searching one bucket within one layout group: stage by stage, then whole candidates against each
// other.
//
// The product of the stages' spaces is never raced. Each stage is timed by itself with the others
// held, which is also the sharper measurement: ten percent of one stage are three of the whole.
// What wins in its stage is put together and must win again as a whole.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tuner/race.h"
#include "tuner/tune_meter.h"
#include "tuner/tune_space.h"

namespace moetune {

struct SearchResult {
  std::vector<Contender> ranking;  ///< Whole operator, best first; the default among them.
  double fallback_us = 0;          ///< The default's median; 0 where it was not timed.
  int tried = 0;                   ///< Different candidates, the rejected included.
  int rejected = 0;
  bool complete = false;  ///< More time would not change the ranking.
};

class BucketSearch {
 public:
  BucketSearch(Meter& meter, const CandidateSpace& space) : meter_(meter), space_(space) {}

  /// Searches until the order is clear or the deadline. Remembers what it saw for the searches of
  /// other buckets. `incumbents` (other buckets' winners, say) are in the final race where they
  /// fit; compilers that have nothing else to do are told of `after`, which is wanted elsewhere.
  SearchResult run(const LayoutGroup& group, const Spot& spot, double deadline_s,
                   const std::vector<Candidate>& incumbents, std::span<const Candidate> after = {});
  /// Tells the compilers what a search there will want first: they have nothing to do while weights
  /// are packed.
  void compile_ahead(const LayoutGroup& group, const Spot& spot);

 private:
  /// Stage times relative to the stage's best, by candidate text: what a neighbouring bucket may
  /// expect.
  using StageTimes = std::map<std::string, double>;

  struct Scope {
    const LayoutGroup& group;
    const Spot& spot;
    double deadline_s;
    Candidate fallback;
    std::span<const Candidate> after;
  };

  /// The arms worth searching, and each arm's start: the incumbent of its scheme where that is
  /// faster than its base.
  std::vector<Arm> promising(const Scope& scope, std::vector<Arm> arms, double deadline_s,
                             const std::vector<Candidate>& incumbents);
  void search_arm(const Scope& scope, const Arm& arm, double deadline_s,
                  const std::vector<Candidate>& incumbents, SearchResult& result);
  RaceResult race_stage(const Scope& scope, const Arm& arm, size_t stage, const Candidate& base,
                        double deadline_s, const std::vector<Candidate>& incumbents);
  std::vector<Candidate> likely_later(const Scope& scope, const Arm& arm, size_t stage,
                                      const Candidate& base);
  void final_race(const Scope& scope, const std::vector<Candidate>& incumbents,
                  SearchResult& result);
  /// Counts who took part.
  void note(const RaceResult& raced);
  Contender contender(const Candidate& candidate, const Spot& spot, bool pinned) const;

  Meter& meter_;
  const CandidateSpace& space_;
  std::map<std::string, StageTimes> seen_;  // by runner, scheme and stage
  std::map<std::string, std::set<std::string>>
      bad_;  // tactics that made a good candidate bad, likewise
  std::vector<Candidate> finalists_;
  std::set<std::string> tried_, rejected_;  // candidate texts, of this run
};

}  // namespace moetune
